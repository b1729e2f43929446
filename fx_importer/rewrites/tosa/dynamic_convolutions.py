"""Convolutions with dynamic kernels, or strides of dynamic sizes: the C++ lowering requires static ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, producer, replace
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.torch_tosa import constants_in, tensor_type_of
from fx_importer.mlir.emit.tosa_sizes import TosaSizeOps
from fx_importer.mlir.walk import rewrite

_FLOATS = ("f16", "bf16", "f32")


@dataclass(frozen=True)
class _Geometry:
    """The numbers of a convolution, with a value per spatial axis."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    def settings(self) -> dict[str, Sequence[int]]:
        """Return the attributes of TOSA's convolutions."""
        widths = [width for pad in self.padding for width in (pad, pad)]
        return {"pad": widths, "stride": self.stride, "dilation": self.dilation}


@rewrite("fx-importer-dynamic-convolutions-to-tosa", ops=("torch.aten.convolution",), emitter=TosaSizeOps)
def dynamic_convolutions_to_tosa(op: ir.Operation, emit: TosaSizeOps) -> None:
    """Lower convolutions of floats with a dynamic weight, or of dynamic sizes.

    The C++ lowering takes plain images if the result has the same dynamic sizes, as with padding 1 and kernel 3.
    """
    x, weight, kind, call = *map(emit.builtin, list(op.operands)[:2]), tensor_type_of(op.results[0]), _geometry(op)
    if x is None or weight is None or kind is None or call is None or emit.element(x) not in _FLOATS:
        return
    axes, sizes = len(call.stride), emit.shape(x)[2:]
    plain = axes == 2 and not call.transposed and call.groups == 1 and {*call.stride, *call.dilation} == {1}
    lengths = emit.shape(weight)[2:]
    kept = all(
        size is not None or length == 2 * pad + 1
        for size, length, pad in zip(sizes, lengths, call.padding, strict=True)
    )
    if (None not in emit.shape(weight) and ((plain and kept) or None not in sizes)) or axes not in (2, 3):
        return
    if call.transposed and (axes == 3 or call.groups > 1 or set(call.dilation) != {1}):
        op.location.emit_error(
            "TOSA's transposed convolution is of images, without groups or dilation; others are forward ones, "
            "for which the kernel's height and width and its channels must be static"
        )
        return
    unbiased = producer(op.operands[2]) == "torch.constant.none"
    bias = _zero(emit, emit.element(x)) if unbiased else emit.builtin(op.operands[2])
    if bias is None:
        return
    order = [0, *range(2, 2 + axes), 1]
    image = emit.transpose(x, order)
    if call.transposed:
        result = _transposed(emit, image, emit.transpose(weight, [1, 2, 3, 0]), bias, call)
    else:
        if set(call.stride) != {1}:
            image = _cropped(emit, image, weight, call)
            call = replace_fields(call, padding=[0] * axes)
        result = _by_groups(emit, image, weight, bias, call)
    result = emit.transpose(result, [0, 1 + axes, *range(1, 1 + axes)])
    result.set_type(emit.tensor(*kind))
    replace(op, emit.value("torch_c.from_builtin_tensor", op.results[0].type, result))


def _geometry(op: ir.Operation) -> _Geometry | None:
    """Return the numbers of a convolution; None if one of them is not constant."""
    stride, padding, dilation, output_padding = (constants_in(op.operands[position]) for position in (3, 4, 5, 7))
    transposed, groups = constant_of(op.operands[6]), constant_of(op.operands[8])
    if not stride or not padding or not dilation or output_padding is None or transposed is None or groups is None:
        return None
    return _Geometry(stride, padding, dilation, bool(transposed), output_padding or [0] * len(stride), groups)


def _cropped(emit: TosaSizeOps, image: ir.Value, weight: ir.Value, call: _Geometry) -> ir.Value:
    """Return the image with its padding, up to where the last window ends."""
    widths: list[Size] = [width for pad in call.padding for width in (pad, pad)]
    image = emit.pad_with_zeros(image, [0, 0, *widths, 0, 0]) if any(call.padding) else image
    for axis, (step, apart) in enumerate(zip(call.stride, call.dilation, strict=True)):
        gaps = emit.compute("mul", emit.compute("sub", emit.dim(weight, 2 + axis), 1), apart)
        image = emit.crop_to_windows(image, 1 + axis, emit.compute("add", gaps, 1), step) if step > 1 else image
    return image


def _by_groups(emit: TosaSizeOps, image: ir.Value, weight: ir.Value, bias: ir.Value, call: _Geometry) -> ir.Value:
    """Return the convolution of a padded image, with channels last: of each group, as TOSA has groups of 1 only."""
    axes, groups, inner = len(call.stride), call.groups, emit.shape(weight)[1]
    kernel = emit.transpose(weight, [0, *range(2, 2 + axes), 1])
    if groups == 1:
        return _convolution(emit, image, kernel, bias, call)
    if inner == 1 and axes == 2:
        return _depthwise(emit, image, weight, bias, call)
    outer = emit.dim(weight, 0)
    outer = outer // groups if isinstance(outer, int) else emit.compute("div_floor", outer, groups)
    width = emit.dim(weight, 1)
    shared = emit.shape(bias) == (1,)

    def part(value: ir.Value, axis: int, group: int, size: Size) -> ir.Value:
        return emit.range_of(value, axis, emit.compute("mul", size, group), size)

    return emit.concat(
        [
            _convolution(
                emit,
                part(image, axes + 1, group, width),
                part(kernel, 0, group, outer),
                bias if shared else part(bias, 0, group, outer),
                call,
            )
            for group in range(groups)
        ],
        axes + 1,
    )


def _convolution(emit: TosaSizeOps, image: ir.Value, kernel: ir.Value, bias: ir.Value, call: _Geometry) -> ir.Value:
    axes = len(call.stride)
    sizes = zip(emit.shape(image)[1:-1], emit.shape(kernel)[1:-1], call.padding, call.dilation, strict=True)
    spatial = [
        None if size is None or length is None else size + 2 * pad - apart * (length - 1)
        for size, length, pad, apart in sizes
    ]
    counts = [None if size is None else (size - 1) // step + 1 for size, step in zip(spatial, call.stride, strict=True)]
    shape = [emit.shape(image)[0], *counts, emit.shape(kernel)[0]]
    return _emit(emit, f"tosa.conv{axes}d", shape, (image, kernel, bias), call.settings())


def _depthwise(emit: TosaSizeOps, image: ir.Value, weight: ir.Value, bias: ir.Value, call: _Geometry) -> ir.Value:
    """Convolve each channel by as many kernels: ``[KH, KW, C, M]`` of ``[C * M, 1, KH, KW]``."""
    (outer, _, *kernel), channels = emit.sizes(weight), call.groups
    per_group = outer // channels if isinstance(outer, int) else emit.compute("div_floor", outer, channels)
    by_channel = emit.reshape_to(emit.transpose(weight, [2, 3, 0, 1]), [*kernel, channels, per_group])
    shape = [emit.shape(image)[0], None, None, emit.shape(weight)[0]]
    return _emit(emit, "tosa.depthwise_conv2d", shape, (image, by_channel, bias), call.settings())


def _transposed(emit: TosaSizeOps, image: ir.Value, kernel: ir.Value, bias: ir.Value, call: _Geometry) -> ir.Value:
    pairs = zip(call.padding, call.output_padding, strict=True)
    widths = [width for pad, more in pairs for width in (-pad, more - pad)]
    shape = [emit.shape(image)[0], None, None, emit.shape(kernel)[0]]
    settings = {"out_pad": widths, "stride": call.stride}
    return _emit(emit, "tosa.transpose_conv2d", shape, (image, kernel, bias), settings)


def _emit(
    emit: TosaSizeOps,
    name: str,
    shape: Sequence[int | None],
    operands: Sequence[ir.Value],
    settings: dict[str, Sequence[int]],
) -> ir.Value:
    element = emit.element(operands[0])
    zero = _zero(emit, element)
    attributes = {key: emit.array(values) for key, values in settings.items()}
    attributes["acc_type"] = emit.attribute("f32")
    return emit.op(name, [emit.tensor(shape, element)], [*operands, zero, zero], attributes).result


def _zero(emit: TosaSizeOps, element: str) -> ir.Value:
    return emit.const(emit.attribute(f"dense<0.0> : tensor<1x{element}>"))

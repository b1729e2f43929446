"""Layers of int8 as calls of CMSIS-NN, Arm's library for Cortex-M."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.functions import body_of, state_aliases
from fx_importer.mlir.walk import operations, rewrite_with_options
from fx_importer.rewrites.llvm.arena import aligned
from fx_importer.rewrites.llvm.entry_point import write_fact
from fx_importer.rewrites.tosa.range_rules import constant_array

LAYERS = "cmsis_nn_layers"
"""The fact which layers call CMSIS-NN: a list of fields of `CmsisLayer`."""
CONVOLUTIONS = ("tosa.conv2d", "tosa.depthwise_conv2d")
"""Linear layers are convolutions of images of one pixel in TOSA."""
IN_NAMES = "_cmsis_nn_"
"""What the name of every function of a layer has."""
_LEAST_SHIFT, _MOST_SHIFT = 32, 62
"""TOSA's shifts for which CMSIS-NN's rounding of a sum to int8 is TOSA's, whatever the sum is: below, its result of 32
bits may overflow before it is rounded. The scale is below 0.5."""
_MOST_SIZE, _MOST_PRODUCTS = 1 << 15, 1 << 16
"""CMSIS-NN computes sizes in 16 bits."""
_BLOCK = 124
"""The channels that CMSIS-NN convolves at a time with Helium (``CH_IN_BLOCK_MVE``)."""
_FAILED = "CMSIS-NN refuses a layer, or needs more scratch memory than the versions that are known"


@dataclass(frozen=True)
class CmsisLayer:
    """A convolution of int8, rescaled to int8 by channel and clamped. Shapes are as CMSIS-NN's: n, h, w, c."""

    name: str
    """Of its function: ``int32_t NAME(input, weights, bias, output, scratch)``."""
    depthwise: bool
    image: tuple[int, ...]
    filter: tuple[int, ...]
    output: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    """Above and to the left."""
    dilation: tuple[int, ...]
    input_offset: int
    output_offset: int
    low: int
    high: int
    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    """To the left."""

    @property
    def scratch(self) -> int:
        """An upper bound of the bytes that its call needs, on processors with and without DSP and Helium."""
        taps, channels = math.prod(self.filter[1:3]), self.image[3]
        if not self.depthwise:
            return _columns(taps * channels)
        converted = _columns(taps) + taps * self.output[3] if channels == 1 else 0
        return aligned(max(4 * _BLOCK * taps, 2 * taps * channels, converted))


def _columns(products: int) -> int:
    """Return the bytes of four columns of an image, or of two in 16 bits."""
    return 4 * aligned(products)


@rewrite_with_options("fx-importer-call-cmsis-nn")
def call_cmsis_nn(module: ir.Operation, library: str = "net") -> None:
    """Replace convolutions of int8 with their rescale and clamp, in TOSA, by calls of a function for each layer.

    Only layers are replaced whose results are the same bits. The function takes addresses, the last one that of scratch
    memory, and returns 0 if all is well. Its definition is C, which the fact `LAYERS` has the data for; its name begins
    with ``library``, so that the functions of two libraries differ.
    """
    layers: list[CmsisLayer] = []
    for op in operations(module, CONVOLUTIONS):
        match = _Match.of(op)
        layer = match and match.layer(f"{library}{IN_NAMES}{len(layers)}")
        if match is not None and layer is not None:
            _declare(module, layer, _replace(match, layer))
            layers.append(layer)
    write_fact(module, LAYERS, [asdict(layer) for layer in layers])


@dataclass(frozen=True)
class _Match:
    """A convolution, the rescale of its sums, and the clamp after it if there is one."""

    convolution: ir.Operation
    rescale: ir.Operation
    clamp: ir.Operation | None

    @staticmethod
    def of(convolution: ir.Operation) -> _Match | None:
        """Return the operations of a layer of a function, outside of loops and branches."""
        in_function = convolution.parent is not None and isinstance(convolution.parent.opview, func_d.FuncOp)
        rescale = _only_user(convolution, "tosa.rescale")
        if not in_function or rescale is None:
            return None
        return _Match(convolution, rescale, _only_user(rescale, "tosa.clamp"))

    @property
    def last(self) -> ir.Operation:
        return self.clamp or self.rescale

    def layer(self, name: str) -> CmsisLayer | None:
        """Return what CMSIS-NN is told; None if its results are not those of TOSA."""
        image, weights, bias, *zero_points = self.convolution.operands
        types = [str(ir.ShapedType(value.type).element_type) for value in (image, weights, bias, self.last.results[0])]
        static = all(ir.ShapedType(value.type).has_static_shape for value in self.convolution.operands)
        zeros = [_constant(value) for value in (*zero_points, *self.rescale.operands[3:])]
        multipliers, shifts = (_constant(value) for value in self.rescale.operands[1:3])
        if types != ["i8", "i8", "i32", "i8"] or not static or multipliers is None or shifts is None:
            return None
        if any(map(_is_state, (image, weights, bias))):
            return None
        if any(zero is None or zero.size != 1 for zero in zeros):
            return None
        input_zero, weight_zero, sum_zero, output_zero = (int(zero.flat[0]) for zero in zeros if zero is not None)
        is_signed = not any(_flag(self.rescale, name) for name in ("input_unsigned", "output_unsigned"))
        rounding = "SINGLE_ROUND" in str(self.rescale.attributes["rounding_mode"])
        exact = shifts.min() >= _LEAST_SHIFT and shifts.max() <= _MOST_SHIFT and multipliers.min() >= 0
        if weight_zero or sum_zero or not (is_signed and rounding and _flag(self.rescale, "scale32") and exact):
            return None
        depthwise = self.convolution.name == "tosa.depthwise_conv2d"
        output = _sizes(self.convolution.results[0])
        channels = output[3]
        if ir.ShapedType(bias.type).shape != [channels]:
            return None
        top, _, left, _ = _numbers(self.convolution, "pad")
        low, high = _limits(self.clamp)
        layer = CmsisLayer(
            name,
            depthwise,
            _sizes(image),
            (1, *_sizes(weights)[:2], channels) if depthwise else _sizes(weights),
            output,
            _numbers(self.convolution, "stride"),
            (top, left),
            _numbers(self.convolution, "dilation"),
            -input_zero,
            output_zero,
            low,
            high,
            tuple(np.broadcast_to(multipliers.flatten(), (channels,)).tolist()),
            tuple((31 - np.broadcast_to(shifts.flatten(), (channels,)).astype(int)).tolist()),
        )
        return layer if _fits(layer) else None


def _is_state(value: ir.Value) -> bool:
    """Whether ``value`` is state, whose memory the function writes: a call could read the new value there."""
    while not isinstance(value.owner, ir.Block) and value.owner.name == "tosa.reshape":
        value = value.owner.operands[0]
    owner = value.owner
    if isinstance(owner, ir.Block):
        return ir.BlockArgument(value).arg_number in state_aliases(owner.owner.opview).values()
    return owner.name == "bufferization.to_tensor" and isinstance(owner.operands[0].owner, ir.Block)


def _fits(layer: CmsisLayer) -> bool:
    """Whether CMSIS-NN takes such sizes, and reads such padding as TOSA does."""
    products = math.prod(layer.filter[1:3]) * (1 if layer.depthwise else layer.image[3])
    sizes = (*layer.image, *layer.filter, *layer.output, *layer.stride, *layer.padding, *layer.dilation)
    if max(sizes) >= _MOST_SIZE or products >= _MOST_PRODUCTS or not math.prod(sizes[:12]):
        return False
    (top, left), (below, right) = layer.padding, (_padding_after(layer, axis) for axis in (0, 1))
    if layer.depthwise:  # of 3x3, the middle column is always read
        return right <= max(left, 1)
    if layer.filter[1:3] == (1, 1) and (top, left) == (0, 0):  # pixels of the result are those of the image
        return below <= 0 and right <= 0
    if layer.image[1] == layer.filter[1] == 1:  # rows: some versions take the paddings to be equal
        return layer.output[1] == 1 and max(right, 0) == left < layer.filter[2]
    return True


def _padding_after(layer: CmsisLayer, axis: int) -> int:
    """Return the rows or columns that are read after an image; a negative number if some of it are not read."""
    read = (layer.output[axis + 1] - 1) * layer.stride[axis]
    read += (layer.filter[axis + 1] - 1) * layer.dilation[axis] + 1
    return read - layer.image[axis + 1] - layer.padding[axis]


def _replace(match: _Match, layer: CmsisLayer) -> list[ir.Type]:
    """Call the function of ``layer``, on buffers of tensors that it only reads; return the types of its arguments."""
    emit = ArithOps.before(match.last)
    buffers = [
        emit.op(
            "bufferization.to_buffer",
            [_memref(emit, _sizes(value), str(ir.ShapedType(value.type).element_type))],
            [value],
            {"read_only": ir.UnitAttr.get(emit.context)},
        ).result
        for value in list(match.convolution.operands)[:3]
    ]
    result = match.last.results[0]
    kinds = [_memref(emit, _sizes(result), "i8"), _memref(emit, (layer.scratch,), "i8")]
    empty = {"operandSegmentSizes": emit.segments(0, 0)}
    output, scratch = (emit.op("memref.alloc", [kind], (), empty).result for kind in kinds)
    arguments = [*buffers, output, scratch]
    status = emit.call_function(layer.name, ["i32"], arguments).result
    holds = emit.compare_integers("eq", status, emit.constant_integer(0, emit.type("i32")))
    emit.op("cf.assert", [], [holds], {"msg": ir.StringAttr.get(_FAILED, emit.context)})
    restrict = {"restrict": ir.UnitAttr.get(emit.context)}  # not writable: views of the buffer may be folded
    replace(match.last, emit.op("bufferization.to_tensor", [result.type], [output], restrict).result)
    if match.clamp is not None:
        match.rescale.erase()
    match.convolution.erase()
    return [value.type for value in arguments]


def _declare(module: ir.Operation, layer: CmsisLayer, inputs: list[ir.Type]) -> None:
    status = ir.IntegerType.get_signless(32, module.context)
    with module.context, module.location, ir.InsertionPoint.at_block_begin(body_of(module)):
        func_d.FuncOp(layer.name, (inputs, [status]), visibility="private")


def _memref(emit: ArithOps, sizes: tuple[int, ...], element: str) -> ir.Type:
    return emit.type(f"memref<{''.join(f'{size}x' for size in sizes)}{element}>")


def _only_user(op: ir.Operation, name: str) -> ir.Operation | None:
    uses = list(op.results[0].uses)
    if len(uses) != 1 or uses[0].owner.operation.name != name or uses[0].owner.operation.block != op.block:
        return None
    return uses[0].owner.operation if uses[0].operand_number == 0 else None


def _constant(value: ir.Value) -> np.ndarray | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "tosa.const":
        return None
    return constant_array(owner.attributes["values"])


def _limits(clamp: ir.Operation | None) -> tuple[int, int]:
    if clamp is None:
        return -128, 127
    low, high = (ir.IntegerAttr(clamp.attributes[name]).value for name in ("min_val", "max_val"))
    return low, high


def _flag(op: ir.Operation, name: str) -> bool:
    return name in op.attributes and ir.BoolAttr(op.attributes[name]).value


def _numbers(op: ir.Operation, name: str) -> tuple[int, ...]:
    return tuple(ir.DenseI64ArrayAttr(op.attributes[name]))


def _sizes(value: ir.Value) -> tuple[int, ...]:
    return tuple(ir.ShapedType(value.type).shape)

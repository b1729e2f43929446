"""Outlining of matrix products and convolutions to functions, which PyTorch's kernels implement.

A function's body says what it computes, so that bufferization sees what it reads and writes. Afterwards,
`library_binding` drops the body, and compiled code calls the kernel of `library_kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter, is_used, producer, terminator
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.functions import body_of
from fx_importer.mlir.indexing_maps import CONVOLUTIONS, PRODUCTS, axes_of_product
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.linalg.axis_orders import transposed
from fx_importer.rewrites.linalg.loop_interchange import transposed_axes
from fx_importer.rewrites.llvm.blas_calls import fits_blas
from fx_importer.rewrites.llvm.half_precision_sums import extended_bias, round_by_groups, rounding
from fx_importer.rewrites.llvm.library_functions import (
    FEWEST_ROWS,
    Convolution,
    Kernel,
    LibraryFunction,
    Product,
    smallest_onednn_work,
    write_library_functions,
)
from fx_importer.rewrites.llvm.processor import processor_of
from fx_importer.rewrites.llvm.row_products import computes_rows, registers
from fx_importer.rewrites.llvm.transposed_convolutions import (
    Transposed,
    is_filled_with_zeros,
    transposed_convolution,
    with_destination,
)

SMALLEST_WORK = 1 << 15
"""The number of multiplications from which a call, of about ten microseconds, is faster than loops."""
SMALLEST_BLAS_WORK = 1 << 18
"""The number of multiplications of a matrix from which a call of BLAS is faster than loops."""
_TILED_BLAS_WORK = {8: 1 << 25}
"""The same for tiles in registers of so many float32, where it is known.

With AVX2, OpenBLAS takes 0.9 to 1.2 times as long as tiles below (a batch of 128x64x128: 1.12, 64x64x64: 1.19), and
0.65 to 1.2 times above. Code for narrower registers is slower than a BLAS that has code for each processor.
"""
_FLOATS = ("f32", "f64", "f16", "bf16")
_DEPTHWISE = "linalg.depthwise_conv_2d_nhwc_hwc"
_BY_COLUMNS = ((0, 2), (1, 2), (0, 1))
_MANY_ROWS = 32
_LARGE_WEIGHT = 1 << 16
"""From these rows and elements on, MKL's products with a matrix ``[n, k]`` take 0.8 to 1.13 times as long as with
``[k, n]``; those with smaller matrices 1.15 to 1.2 times, for which copies are small."""


@rewrite("fx-importer-outline-library-calls")
def outline_library_calls(module: ir.Operation) -> None:
    """Outline the products and convolutions of ``module``, on tensors, that are worth a call.

    The functions are written to an attribute of the module, see `library_functions_of`.

    Integers stay loops, and so do products whose operands have other types than their result.
    """
    _choose_layouts(module)
    round_by_groups(module)
    kernels = dict.fromkeys(PRODUCTS, _product) | dict.fromkeys(CONVOLUTIONS, _convolution)
    _outline_kernels(module, kernels)


@rewrite("fx-importer-outline-blas-calls")
def outline_blas_calls(module: ir.Operation) -> None:
    """Outline the products of ``module``, on tensors, of float32 and float64, that are worth a call of BLAS."""
    _choose_layouts(module)
    _outline_kernels(module, dict.fromkeys(PRODUCTS, _blas_product))


def _outline_kernels(module: ir.Operation, kernel_of: Mapping[str, Callable[[_Region], Kernel | None]]) -> None:
    kernels: dict[str, LibraryFunction] = {}
    named: dict[tuple[Kernel, str], str] = {}
    for op in operations(module.operation, kernel_of):
        region = _Region.of(op)
        if region is None:
            continue
        kernel = kernel_of[op.name](region)
        if kernel is not None:
            name = f"fx_importer_library_{len(kernels)}"
            function, call, types = _outline(region, name, module)
            text = function.operation.get_asm(use_local_scope=True).replace(f"@{name}(", "(", 1)
            if named.setdefault((kernel, text), name) == name:
                kernels[name] = LibraryFunction(kernel, *types)
            else:
                call.attributes["callee"] = ir.FlatSymbolRefAttr.get(named[kernel, text], module.context)
                function.operation.erase()
    write_library_functions(module, kernels)


def _choose_layouts(module: ir.Operation) -> None:
    """Transpose the weights ``[n, k]`` of products of few rows, once at load; read large ones of others as they are."""
    for op in operations(module.operation, ("linalg.matmul",)):
        axes, weight = axes_of_product(op), op.operands[1]
        if _work(op) < SMALLEST_WORK:
            continue
        emit = LinalgOps.before(op)
        if axes == ("mk", "nk", "mn") and producer(weight) == "arith.constant" and _is_by_rows(op, "kn"):
            op.operands[1] = transposed(emit, weight, (1, 0))
            op.attributes["indexing_maps"] = emit.affine_maps(
                [emit.select_axes(3, letters) for letters in PRODUCTS["linalg.matmul"]]
            )
        elif axes == ("mk", "kn", "mn") and _order_of_constant(weight)[:2] == (1, 0) and _is_of_many_rows(op):
            op.operands[1] = _matrix(emit, weight.owner.operands[0])
            op.attributes["indexing_maps"] = emit.affine_maps([emit.select_axes(3, letters) for letters in _BY_COLUMNS])


def _is_of_many_rows(op: ir.Operation) -> bool:
    """Return whether ``op`` is a call of a library that is about as fast with the weight ``[n, k]`` of the model."""
    left, right = (ir.ShapedType(value.type).shape for value in list(op.operands)[:2])
    is_large = left[0] >= _MANY_ROWS and math.prod(right) >= _LARGE_WEIGHT  # a dynamic number of rows is negative
    return is_large and {_element(value) for value in op.operands} in ({"f32"}, {"f64"})


def _matrix(emit: LinalgOps, weight: ir.Value) -> ir.Value:
    """Return ``weight`` as a matrix, without the axes after the second, which have size 1."""
    kind = ir.RankedTensorType(weight.type)
    if kind.rank == 2:
        return weight
    return emit.collapse_shape(weight, [[0], [*range(1, kind.rank)]], emit.tensor(kind.shape[:2], kind.element_type))


class _Region:
    """The operations of a product or convolution that one call computes: padding, zeros, itself, and rounding.

    Before a rounding, there may be the broadcast of a bias in the place of zeros.
    """

    def __init__(self, op: ir.Operation, zero: bool, bias: _Bias | None, rounding: ir.Operation | None):
        self.op = op
        self.zero = zero
        self.bias = bias
        last = rounding or op
        begin = op.operands[2]
        if rounding is not None:
            self.ops = [*(bias.ops if bias else with_destination(begin.owner)), op, rounding]
            self.destination: ir.Value = rounding.operands[1]
        else:
            self.ops = [begin.owner, op] if zero else [op]
            self.destination = begin.owner.operands[1] if zero else begin
        self.result: ir.Value = last.results[0]
        self.inputs: list[ir.Value] = list(op.operands)[:2]
        axes = CONVOLUTIONS[op.name][0] if op.name in CONVOLUTIONS else ""
        self.padding = _padding(op.operands[0], axes) or (0,) * axes.count("s")
        self.transposed = _transposed(op)
        if self.transposed is not None:
            self.inputs = [self.transposed.image, self.transposed.weight]
            self.ops[:0] = self.transposed.ops
        elif any(self.padding):
            self.ops.insert(0, op.operands[0].owner)
            self.inputs[0] = op.operands[0].owner.operands[0]
        self.weight = CONVOLUTIONS[op.name][1] if op.name in CONVOLUTIONS else ""
        """The axes of the weight of a convolution: of a constant that is transposed for it, as they are in memory."""
        if self.weight and (order := _order_of_constant(op.operands[1])):
            letters = dict(zip(order, self.weight, strict=False))
            self.weight = "".join(letters.get(axis, "1") for axis in range(len(order)))
            self.ops[:0] = with_destination(op.operands[1].owner)
            self.inputs[1] = op.operands[1].owner.operands[0]
        if bias is not None:
            self.inputs.append(bias.value)

    @classmethod
    def of(cls, op: ir.Operation) -> _Region | None:
        """Return the region around ``op``; None if no kernel of PyTorch computes the same."""
        left, right, result = (_element(value) for value in op.operands)
        if left != right or left not in _FLOATS or _work(op) < SMALLEST_WORK:
            return None
        zero = is_filled_with_zeros(op.operands[2])
        if left == result:
            if op.name == _DEPTHWISE and ir.ShapedType(op.operands[2].type).shape[-1] >= registers(op)[0] > 0:
                return None  # `tile_sums` is faster
            return cls(op, zero, None, None) if left in ("f32", "f64") else None
        rounded = rounding(op.results[0], left)
        bias = _bias(op, left)
        if rounded is None or not (zero or bias) or result != "f32":
            return None  # sums of 16-bit floats in float32, which PyTorch rounds
        if with_destination(op.operands[2].owner)[0].name != "tensor.empty":
            return None  # the function only has the memory of its operands and result
        return cls(op, zero, bias, rounded)


def _product(region: _Region) -> Product | None:
    op = region.op
    axes = axes_of_product(op)
    if axes is None:
        return None
    left, _, result = axes
    rows = ir.ShapedType(op.operands[2].type).shape[result.index("m")]
    smallest = smallest_onednn_work()
    # Gradients of weights have a transposed left matrix: one of 512 x 512 of 64 rows takes oneDNN 368 µs on one thread
    # and 340 on two, and MKL 349 and 193.
    by_onednn = (
        smallest is not None
        and op.name == "linalg.matmul"
        and left == "mk"
        and _element(op.operands[0]) == "f32"
        and _work(op) >= smallest
        and (rows >= FEWEST_ROWS or rows == ir.ShapedType.get_dynamic_size())
    )
    by_rows = axes in (("mk", "kn", "mn"), ("mk", "nk", "mn")) and _is_by_rows(op, axes[1])
    return Product(*axes, accumulate=not region.zero, by_onednn=by_onednn, static=rows >= 0, by_rows=by_rows)


def _blas_product(region: _Region) -> Kernel | None:
    product, kinds = _product(region), [ir.ShapedType(value.type) for value in region.op.operands]
    if product is None or product.by_rows or not fits_blas(product, kinds):
        return None
    batch = max(kinds[2].shape[0], 1) if region.op.name == "linalg.batch_matmul" else 1
    if _work(region.op) < _smallest_blas_work(region.op) * batch:  # a call computes a matrix
        return None
    return replace(product, by_onednn=False)


def _smallest_blas_work(op: ir.Operation) -> int:
    processor = processor_of(op)
    if processor is None or processor.threads:  # tiles that threads share copy no columns
        return SMALLEST_BLAS_WORK
    return _TILED_BLAS_WORK.get(processor.lanes, SMALLEST_BLAS_WORK)


def _is_by_rows(op: ir.Operation, weight: str) -> bool:
    """Return whether `define_row_product` computes a matmul to ``[m, n]``, with a right matrix of axes ``weight``."""
    (rows, inner), (_, columns) = (ir.ShapedType(value.type).shape for value in (op.operands[0], op.operands[2]))
    return computes_rows(op, _element(op.operands[0]), weight, rows, inner, columns)


def _convolution(region: _Region) -> Kernel | None:
    op = region.op
    axes, weight = CONVOLUTIONS[op.name][0], region.weight
    strides, dilations = (_numbers(op, name, axes.count("s")) for name in ("strides", "dilations"))
    bias = region.bias is not None
    accumulate = not region.zero and not bias
    if (of := region.transposed) is not None:
        where = (of.strides, dilations, of.padding, accumulate, of.output_padding, bias)
        return Convolution(axes, weight.replace("fc", "cf"), *where)
    return Convolution(axes, weight, strides, dilations, region.padding, accumulate, bias=bias)


def _transposed(op: ir.Operation) -> Transposed | None:
    if CONVOLUTIONS.get(op.name, ("", ""))[1][:2] != "fc" or any(number != 1 for number in _numbers(op, "strides", 1)):
        return None
    return transposed_convolution(op, _numbers(op, "dilations", ir.ShapedType(op.operands[0].type).rank - 2))


def _order_of_constant(value: ir.Value) -> tuple[int, ...]:
    """Return the axes of a constant in the order of its transposition ``value``, as `transposed_axes`; else none."""
    order = transposed_axes(value.owner) if producer(value) == "linalg.generic" else None
    return order if order and producer(value.owner.operands[0]) == "arith.constant" else ()


def _numbers(op: ir.Operation, name: str, count: int) -> tuple[int, ...]:
    if name not in op.attributes:
        return (1,) * count
    return tuple(ir.DenseIntElementsAttr(op.attributes[name]))


def _outline(
    region: _Region, name: str, module: ir.Operation
) -> tuple[func_d.FuncOp, func_d.CallOp, tuple[list[str], list[int], int]]:
    """Outline ``region``; return the function, its call, and element types, ranks and indices that it takes."""
    nested = [operation for op in region.ops for operation in operations(op)]
    inside = set(nested)
    reads = [*region.inputs, region.destination]
    captured = dict.fromkeys(
        value for op in nested for value in op.operands if value not in reads and _owner(value) not in inside
    )
    constants = [value for value in captured if producer(value) == "arith.constant"]
    reads += [value for value in captured if value not in constants]
    with module.context, region.op.location:
        with ir.InsertionPoint.at_block_begin(body_of(module)):
            kind = ([value.type for value in reads], [region.result.type])
            function = func_d.FuncOp(name, kind, visibility="private")
        function.attributes["no_inline"] = ir.UnitAttr.get()
        entry = function.add_entry_block()
        values: dict[ir.Value, ir.Value] = dict(zip(reads, entry.arguments, strict=True))
        with ir.InsertionPoint(entry):
            for value in constants:
                values[value] = value.owner.clone().results[0]
            for op in region.ops:
                clone = op.clone()
                for operation in operations(clone):
                    for position, operand in enumerate(operation.operands):
                        operation.operands[position] = values.get(operand, operand)
                values.update(zip(op.results, clone.results, strict=True))
            # Says that the result is in the memory of the destination, whatever other passes make of the body.
            written = Emitter(ir.InsertionPoint(entry), region.op.location).value(
                "bufferization.materialize_in_destination",
                region.result.type,
                values[region.result],
                values[region.destination],
            )
            func_d.ReturnOp([written])
        last = region.ops[-1]
        with ir.InsertionPoint(last):
            call = func_d.CallOp([region.result.type], name, reads)
    region.result.replace_all_uses_with(call.results[0])
    for op in reversed(region.ops):
        if not any(map(is_used, op.results)):
            op.erase()
    tensors = [ir.RankedTensorType(value.type) for value in reads if isinstance(value.type, ir.RankedTensorType)]
    types = (
        [str(tensor.element_type) for tensor in tensors],
        [tensor.rank for tensor in tensors],
        len(reads) - len(tensors),
    )
    return function, call, types


def _owner(value: ir.Value) -> ir.Operation:
    """Return the operation that ``value`` is a result or an argument of."""
    owner = value.owner.owner if isinstance(value.owner, ir.Block) else value.owner
    return owner.operation


def _padding(value: ir.Value, axes: str) -> tuple[int, ...] | None:
    """Return how many zeros ``value`` has on both sides of each spatial axis; None for other values."""
    if producer(value) != "tensor.pad" or len(value.owner.operands) != 1:
        return None
    op = value.owner
    low, high = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{side}"])) for side in ("low", "high"))
    added = terminator(op.regions[0].blocks[0]).operands[0]
    if low != high or any(size for size, axis in zip(low, axes, strict=True) if axis != "s"):
        return None
    zero = producer(added) == "arith.constant" and ir.FloatAttr(added.owner.attributes["value"]).value == 0
    return tuple(size for size, axis in zip(low, axes, strict=True) if axis == "s") if zero else None


def _element(value: ir.Value) -> str:
    return str(ir.ShapedType(value.type).element_type)


def _work(op: ir.Operation) -> float:
    """Return the number of multiplications of a product or convolution; infinity if a size is dynamic."""
    operands: Sequence[ir.ShapedType] = [ir.ShapedType(value.type) for value in op.operands]
    if not all(operand.has_static_shape for operand in operands):
        return math.inf
    left, right, result = (math.prod(operand.shape) for operand in operands)
    if op.name in CONVOLUTIONS:
        weight = CONVOLUTIONS[op.name][1]
        filters = [size for size, axis in zip(operands[1].shape, weight, strict=True) if axis in "gf"]
        channels = 1 if "f" in weight else operands[1].shape[weight.index("c")]
        return result * right // max(math.prod(filters) * channels, 1)
    batch = operands[2].shape[0] if op.name == "linalg.batch_matmul" else 1
    return math.sqrt(left * right * result / max(batch, 1))


@dataclass(frozen=True)
class _Bias:
    """A tensor of one element for each channel, which `ops` convert to float32 and broadcast."""

    value: ir.Value
    ops: tuple[ir.Operation, ...]


def _bias(op: ir.Operation, element: str) -> _Bias | None:
    """Return the bias of ``element`` that the sums of a convolution begin with; None if they begin with others."""
    if op.name not in CONVOLUTIONS:
        return None
    begin, (axes, _) = op.operands[2], CONVOLUTIONS[op.name]
    extended = extended_bias(begin, tuple(position for position, axis in enumerate(axes) if axis in "gc"), element)
    if extended is None:
        return None
    return _Bias(extended.operands[0], (*with_destination(extended), *with_destination(begin.owner)))

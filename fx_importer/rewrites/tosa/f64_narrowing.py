"""Narrowing of f64 to f32, as TOSA has no f64: inside of a module, or in the signatures of its functions too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace, terminator, update_function_type, with_element
from fx_importer.mlir.emit.torch import TorchOps
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.resources import is_resource, key_of, resource
from fx_importer.mlir.types import TorchTensor
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.tosa.integer_ranges import functions_of
from fx_importer.rewrites.tosa.range_rules import constant_array

_UNKNOWN = (
    "an external weight of float64 has no values here that could become the float32 that TOSA computes in: convert it "
    "in the model, or pass weights='inline'"
)


@rewrite("fx-importer-fit-tosa-floats")
def fit_tosa_floats(module: ir.Operation) -> None:
    """Compute f64 in f32. Public and declared functions keep their types: f64 there is cast, which is not valid."""
    _FloatNarrowing(module, everything=False).run()


@rewrite("fx-importer-narrow-tosa-floats")
def narrow_tosa_floats(module: ir.Operation) -> None:
    """Narrow every f64 to f32, also in the signatures of public functions."""
    _FloatNarrowing(module, everything=True).run()


@rewrite("fx-importer-f64-convolutions-to-f32", ops=("torch.aten.convolution",), emitter=TorchOps)
def f64_convolutions_to_f32(op: ir.Operation, emit: TorchOps) -> None:
    """Convolve f64 in f32: the C++ lowering refuses f64, which other operators keep until `fit_tosa_floats`."""
    wide = op.results[0].type
    if not _is_torch_f64(wide):
        return
    operands = [_converted(emit, operand, "f32") if _is_torch_f64(operand.type) else operand for operand in op.operands]
    narrow = emit.value(op.name, str(TorchTensor.of(op.results[0]).with_element("f32")), *operands)
    replace(op, _converted(emit, narrow, "f64"))


def _is_torch_f64(type_: ir.Type) -> bool:
    tensor = TorchTensor.read(type_)
    return tensor is not None and tensor.element == "f64"


def _converted(emit: TorchOps, value: ir.Value, element: str) -> ir.Value:
    """Emit a conversion of a float tensor of the torch dialect."""
    no = emit.boolean(False)
    none = emit.value("torch.constant.none", "!torch.none")
    dtype = emit.integer({"f32": 6, "f64": 7}[element])
    converted = str(TorchTensor.of(value).with_element(element))
    return emit.value("torch.aten.to.dtype", converted, value, dtype, no, no, none)


class _FloatNarrowing:
    """Narrowing of one module: of the values in functions, and of the signatures of those in ``_narrow``."""

    def __init__(self, module: ir.Operation, *, everything: bool):
        self._functions = functions_of(module)
        self._narrow = {_name(function) for function in self._functions if everything or _is_private(function)}
        self._constants: dict[ir.Attribute, ir.Attribute | None] = {}

    def run(self) -> None:
        """Narrow all functions."""
        for function in self._functions:
            block = function.regions[0].blocks[0]
            if any(_is_f64(value) for value in _values(block)):
                self._function(function, block)

    def _function(self, function: ir.Operation, block: ir.Block) -> None:
        wide = [call for call in operations(function, ("func.call",)) if _callee(call) not in self._narrow]
        kept: set[ir.Value] = {value for call in wide for value in call.results if _is_f64(value)}
        if _name(function) not in self._narrow:
            wide.append(terminator(block))
            kept.update(value for value in block.arguments if _is_f64(value))
        operand_types = [[operand.type for operand in op.operands] for op in wide]
        for value in list(_values(block)):
            if _is_f64(value) and value not in kept:
                value.set_type(with_element(value.type, "f32"))
        for op in list(_operations(block)):
            self._attributes(op)
        for value in kept:
            _narrow_uses(value, wide)
        for op, types in zip(wide, operand_types, strict=True):
            for position, type_ in enumerate(types):
                if op.operands[position].type != type_:
                    op.operands[position] = TosaOps.before(op).value("tosa.cast", type_, op.operands[position])
        for op in operations(function, ("tosa.cast",)):
            if op.operands[0].type == op.results[0].type:
                replace(op, op.operands[0])
        update_function_type(function)

    def _attributes(self, op: ir.Operation) -> None:
        for name in op.attributes:
            value = op.attributes[name]
            if isinstance(value, ir.FloatAttr) and str(value.type) == "f64":
                op.attributes[name] = ir.FloatAttr.get(ir.F32Type.get(op.context), value.value, loc=op.location)
            elif op.name == "tosa.const" and name == "values" and _element(value.type) == "f64":
                if value not in self._constants:
                    self._constants[value] = _as_f32(value)
                narrow = self._constants[value]
                if narrow is None:
                    op.location.emit_error(_UNKNOWN)
                    return
                op.attributes[name] = narrow


def _name(function: ir.Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _is_private(function: ir.Operation) -> bool:
    name = "sym_visibility"
    return name in function.attributes and ir.StringAttr(function.attributes[name]).value == "private"


def _element(type_: ir.Type) -> str:
    return str(ir.RankedTensorType(type_).element_type) if isinstance(type_, ir.RankedTensorType) else ""


def _is_f64(value: ir.Value) -> bool:
    return _element(value.type) == "f64"


def _operations(block: ir.Block) -> Iterator[ir.Operation]:
    """Yield the operations of ``block`` and of their regions."""
    for view in block.operations:
        yield view.operation
        for region in view.operation.regions:
            for inner in region.blocks:
                yield from _operations(inner)


def _values(block: ir.Block) -> Iterator[ir.Value]:
    """Yield the arguments and results in ``block``, and in the regions of its operations."""
    yield from block.arguments
    for op in block.operations:
        yield from op.results
        for region in op.operation.regions:
            for inner in region.blocks:
                yield from _values(inner)


def _narrow_uses(value: ir.Value, wide: Sequence[ir.Operation]) -> None:
    """Cast ``value`` to f32 once, for its uses in other operations than those in ``wide``."""
    narrow: ir.Value | None = None
    uses = [(use.owner, use.operand_number) for use in value.uses]
    for op, position in uses:
        if op in wide:
            continue
        if narrow is None:
            owner = value.owner
            at_begin = isinstance(owner, ir.Block)
            point = ir.InsertionPoint.at_block_begin(owner) if at_begin else ir.InsertionPoint.after(owner)
            emit = TosaOps(point, owner.owner.location if isinstance(owner, ir.Block) else owner.location)
            narrow = emit.cast_element(value, "f32")
        op.operands[position] = narrow


def _as_f32(values: ir.Attribute) -> ir.Attribute | None:
    """Return the constant ``values`` rounded to f32; None for a resource without data."""
    type_ = with_element(values.type, "f32")
    array = constant_array(values)
    if array is None:
        return None
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    if is_resource(values):
        return resource(narrow, f"{key_of(values)}.float32", type_)
    return ir.DenseElementsAttr.get(narrow, type=type_, context=values.context)

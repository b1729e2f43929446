"""Constant tensors in the dialect of the target: conversions leave some as ``arith.constant``."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, is_used, producer, replace
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-constants-to-tosa", ops=("arith.constant",))
def constants_to_tosa(op: ir.Operation) -> None:
    """Turn every constant tensor into a ``tosa.const``."""
    _replace_constant(op, "tosa.const", "values")


@rewrite("fx-importer-constants-to-stablehlo")
def constants_to_stablehlo(module: ir.Operation) -> None:
    """Turn every constant tensor into a ``stablehlo.constant``; uninitialized ones of static shape become zeros."""
    for op in operations(module, ("tensor.empty",)):
        if not op.operands:
            replace(op, StablehloOps.before(op).zeros(op.results[0].type))
    for op in operations(module, ("arith.constant",)):
        _replace_constant(op, "stablehlo.constant", "value")


@rewrite("fx-importer-literals-to-stablehlo", ops=("torch_c.to_builtin_tensor",), emitter=StablehloOps)
def literals_to_stablehlo(op: ir.Operation, emit: StablehloOps) -> None:
    """Turn constants of unsigned integers, which folding makes torch's again, into ``stablehlo.constant``."""
    if producer(op.operands[0]) != "torch.vtensor.literal":
        return
    literal = op.operands[0].owner
    value = literal.attributes["value"]
    if value.type == op.results[0].type:
        replace(op, emit.const(value))
        if not is_used(literal.results[0]):
            literal.erase()


def _replace_constant(op: ir.Operation, name: str, attribute: str) -> None:
    """Replace ``op``, an ``arith.constant``, by the operation ``name``, which holds the value as ``attribute``."""
    type_ = op.results[0].type
    if not isinstance(type_, ir.RankedTensorType) or isinstance(type_.element_type, ir.IndexType):
        return  # neither dialect has tensors of index
    emit = Emitter.before(op)
    try:
        new = emit.op(name, [type_], (), {attribute: op.attributes["value"]})
    except TypeError:
        # A complex ``dense``. Both constants are spelled alike. (A ``dense_resource`` as text would lose its bytes.)
        new = emit.parsed(str(op).replace("arith.constant", name, 1))
    replace(op, new.results[0])

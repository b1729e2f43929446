"""Specialization of TOSA with dynamic sizes: a static copy for the sizes of a call, as the specification has it."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.execution.module_functions import functions_of
from fx_importer.mlir.bindings import ir, passmanager
from fx_importer.mlir.emit import replace, terminator
from fx_importer.mlir.emit_tosa import TosaOps
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.walk import operations

_INFER = "builtin.module(func.func(tosa-infer-shapes))"


def specialize_tosa(
    module: ir.Module, shapes: Sequence[Sequence[int]], numbers: Sequence[int | None] = ()
) -> ir.Module:
    """Return a copy whose ``main`` takes tensors of ``shapes``. Values of integers are not used."""
    copy = copy_module(module.operation)
    function = functions_of(copy)["main"]
    with copy.context, function.location:
        for argument, shape in zip(function.entry_block.arguments, shapes, strict=True):
            argument.set_type(ir.RankedTensorType.get(shape, argument.type.element_type))
        passes = passmanager.PassManager.parse(_INFER, copy.context)
        passes.enable_verifier(False)  # operands are more static than the casts and the function's type say
        passes.run(copy.operation)
        for cast in operations(copy.operation, ("tensor.cast",)):
            replace(cast, cast.operands[0])
        for op in operations(copy.operation, ("tosa.reshape", "tosa.slice")):
            result = ir.RankedTensorType(op.results[0].type)
            if result.has_static_shape:  # the specification has no inferred sizes, -1
                op.operands[len(op.operands) - 1] = TosaOps.before(op).const_shape(result.shape)
        inputs, results = (
            [each.type for each in values]
            for values in (function.entry_block.arguments, terminator(function.entry_block).operands)
        )
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    copy.operation.verify()
    return copy

"""Operator stubs, functions that a module only declares, as C functions that PyTorch implements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.entry_point import write_fact

if TYPE_CHECKING:
    from fx_importer.fx_graph.operator_stub import OperatorStub

DESTINATIONS = "destinations"
"""The fact which stubs write their results to memory that callers allocate."""
STUB_SUCCEEDED = "__fx_importer_fine"
"""The function that returns whether the last call of a stub succeeded."""


def operator_stubs_of(module: ir.Module | ir.Operation) -> dict[str, OperatorStub]:
    """Return the operator stubs of ``module``, by name of the function."""
    from fx_importer.fx_graph.operator_stub import STUB_ATTRIBUTE, OperatorStub

    return {
        name: OperatorStub.from_json(ir.StringAttr(function.attributes[STUB_ATTRIBUTE]).value)
        for name, function in _stub_functions(module).items()
    }


def _stub_functions(module: ir.Module | ir.Operation) -> dict[str, func_d.FuncOp]:
    from fx_importer.fx_graph.operator_stub import STUB_ATTRIBUTE

    return {name: op for name, op in functions_of(module).items() if STUB_ATTRIBUTE in op.attributes}


@rewrite("fx-importer-declare-operator-stubs")
def declare_operator_stubs(module: ir.Operation) -> None:
    """Mark the functions of operator stubs, on tensors, as C interfaces that only read their arguments."""
    for function in _stub_functions(module).values():
        with function.context:
            function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
            read_only = ir.DictAttr.get({"bufferization.access": ir.StringAttr.get("read")})
            function.attributes["arg_attrs"] = ir.ArrayAttr.get([read_only] * len(function.type.inputs))


@rewrite("fx-importer-pass-destinations")
def pass_destinations(module: ir.Operation) -> None:
    """Have callers allocate the results of stubs, on buffers, where their sizes are static."""
    stubs = {name: op for name, op in _stub_functions(module).items() if takes_destinations(op.type)}
    for op in operations(module.operation, ("func.call",)):
        if ir.FlatSymbolRefAttr(op.attributes["callee"]).value not in stubs:
            continue
        emit = Emitter.before(op)
        none = {"operandSegmentSizes": emit.segments(0, 0)}
        buffers = [emit.op("memref.alloc", [result.type], [], none).result for result in op.results]
        emit.op("func.call", [], [*op.operands, *buffers], {"callee": op.attributes["callee"]})
        for result, buffer in zip(op.results, buffers, strict=True):
            result.replace_all_uses_with(buffer)
        op.erase()
    write_fact(module, DESTINATIONS, sorted(stubs))
    for function in stubs.values():
        kind = ir.FunctionType.get([*function.type.inputs, *function.type.results], [], context=module.context)
        function.attributes["function_type"] = ir.TypeAttr.get(kind, module.context)
        for attribute in {"arg_attrs", "res_attrs"} & set(function.attributes):
            del function.attributes[attribute]


def takes_destinations(kind: ir.FunctionType) -> bool:
    """Whether callers of a stub allocate its results, which have static sizes."""
    return len(kind.results) > 0 and all(ir.ShapedType(result).has_static_shape for result in kind.results)

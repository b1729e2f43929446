"""Extraction of a function from a module, and checks of dialects."""

from __future__ import annotations

from collections.abc import Collection

from fx_importer.calls.call_signature import CallingConvention
from fx_importer.distributed.module_attributes import mesh_of
from fx_importer.distributed.shardings import is_sharded
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.functions import function_named, functions_of, operation_names
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.walk import operations


def check_one_device(module: ir.Module) -> None:
    """Raise `UsageError` if ``module`` is the program of each device of a mesh, and not one of whole tensors."""
    if (mesh := mesh_of(module)) is not None and mesh.size > 1 and not is_sharded(module):
        raise UsageError(
            f"the module runs on the {mesh.size} devices of the mesh {mesh} together: run it with "
            "Lowered.caller_on_mesh"
        )


def extract_function(module: ir.Module, name: str) -> tuple[ir.Module, func_d.FuncOp]:
    """Return a copy of ``module`` with the function ``name``, renamed to ``main``, and the functions that it calls.

    Raises:
        UsageError: if no function has that name, or it calls one that is only declared.
    """
    check_one_device(module)
    return copied_function(module, name)


def copied_function(module: ir.Module, name: str) -> tuple[ir.Module, func_d.FuncOp]:
    """Return what `extract_function` does, also of the program of each device of a mesh."""
    function_named(module, name)
    copy = copy_module(module.operation)
    functions = functions_of(copy)
    reached = [name]
    for symbol in reached:
        called = {callee for callee in _symbols(functions[symbol].operation) if callee in functions}
        reached += sorted(called - set(reached))
    if declared := [symbol for symbol in reached if not functions[symbol].operation.regions[0].blocks]:
        raise UsageError(
            f"'{name}' calls {', '.join(map(repr, declared))}, which the module declares and does not define: where "
            "they stand for operators that PyTorch runs, leave the backend out: the default one calls PyTorch"
        )
    for unreached in functions.keys() - set(reached):
        functions[unreached].operation.erase()
    with copy.context:
        if name != "main" and "main" in reached:
            _rename(copy, functions["main"], "main_of_the_module")
        for symbol in reached:
            visibility = "public" if symbol == name else "private"
            functions[symbol].attributes["sym_visibility"] = ir.StringAttr.get(visibility)
        _rename(copy, functions[name], "main")
    return copy, functions[name]


def _rename(module: ir.Module, function: func_d.FuncOp, name: str) -> None:
    ir.SymbolTable.replace_all_symbol_uses(function.name.value, name, module.operation)
    ir.SymbolTable.set_symbol_name(function, name)


def _symbols(operation: ir.Operation) -> set[str]:
    """Return the names of the functions that ``operation`` and nested operations call."""
    return {ir.FlatSymbolRefAttr(op.attributes["callee"]).value for op in operations(operation, ("func.call",))}


def check_dialects(module: ir.Module, dialects: Collection[str], convention: CallingConvention) -> None:
    """Raise `UsageError` with every operation outside of ``dialects``."""
    if foreign := [name for name in operation_names(module) if name.partition(".")[0] not in dialects]:
        raise UsageError(
            f"{convention.runner} runs {convention.output_type}, but the module holds {', '.join(foreign)}, which it "
            "does not know"
        )

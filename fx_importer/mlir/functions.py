"""Functions and dialects of a module by name."""

from __future__ import annotations

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.walk import operations


def functions_of(module: ir.Module) -> dict[str, func_d.FuncOp]:
    """Return the functions of ``module`` by name."""
    return {op.name.value: op for op in module.body if isinstance(op, func_d.FuncOp)}


def function_named(module: ir.Module, name: str) -> func_d.FuncOp:
    """Return the function ``name``. Raises `UsageError` if the module has none."""
    functions = functions_of(module)
    if name not in functions:
        there = ", ".join(f"'{each}'" for each in functions) or "none"
        raise UsageError(f"the module has no function '{name}': there is {there}")
    return functions[name]


def dialects_of(module: ir.Module) -> set[str]:
    """Return the names of the dialects of the operations of ``module``."""
    return {name.partition(".")[0] for name in operation_names(module)}


def operation_names(module: ir.Module) -> list[str]:
    return sorted({op.name for op in operations(module.operation)})

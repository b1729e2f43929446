"""Functions and dialects of a module by name."""

from __future__ import annotations

from fx_importer.diagnostics.assumption_messages import PREFIX
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.walk import operations


def body_of(module: ir.Module | ir.Operation) -> ir.Block:
    """Return the block with the functions of ``module``."""
    return module.operation.regions[0].blocks[0]


def functions_of(module: ir.Module | ir.Operation) -> dict[str, func_d.FuncOp]:
    """Return the functions of ``module`` by name."""
    return {op.name.value: op for op in body_of(module) if isinstance(op, func_d.FuncOp)}


def function_named(module: ir.Module | ir.Operation, name: str) -> func_d.FuncOp:
    """Return the function ``name``. Raises `UsageError` if the module has none."""
    functions = functions_of(module)
    if name not in functions:
        there = ", ".join(f"'{function}'" for function in functions) or "none"
        raise UsageError(f"the module has no function '{name}': there is {there}")
    return functions[name]


def dialects_of(module: ir.Module | ir.Operation) -> set[str]:
    """Return the names of the dialects of the operations of ``module``."""
    return {name.partition(".")[0] for name in operation_names(module)}


def operation_names(module: ir.Module | ir.Operation) -> list[str]:
    return sorted({op.name for op in operations(module.operation)})


def state_aliases(function: func_d.FuncOp) -> dict[int, int]:
    """Return the positions of results that are new values of state, and of the arguments with the old ones."""
    arguments, returned = (
        [
            str(attributes["fx_importer.state"]) if "fx_importer.state" in attributes else None
            for attributes in map(
                ir.DictAttr, ir.ArrayAttr(function.attributes[kind]) if kind in function.attributes else ()
            )
        ]
        for kind in ("arg_attrs", "res_attrs")
    )
    return {at: arguments.index(name) for at, name in enumerate(returned) if name is not None and name in arguments}


def check_results(function: func_d.FuncOp) -> list[int]:
    """Return the positions of the results of ``function`` that say whether assumptions of the capture hold."""
    results = ir.ArrayAttr(function.attributes["res_attrs"]) if "res_attrs" in function.attributes else ()
    return [at for at, attributes in enumerate(map(ir.DictAttr, results)) if "fx_importer.check" in attributes]


def checks_assumptions(function: func_d.FuncOp) -> bool:
    """Return whether a call of ``function`` may violate an assumption of the capture, by a result or an assertion.

    The old state is kept then, so it may not be overwritten before.
    """
    if check_results(function):
        return True
    return any(map(is_assumption, operations(function.parent or function.operation, tuple(_MESSAGES))))


def is_assumption(op: ir.Operation) -> bool:
    """Return whether ``op`` is an assertion of an assumption of the capture."""
    return op.name in _MESSAGES and ir.StringAttr(op.attributes[_MESSAGES[op.name]]).value.startswith(PREFIX)


_MESSAGES = {"cf.assert": "msg", "torch.runtime.assert": "message"}
"""Assertions, and their attribute with the message."""

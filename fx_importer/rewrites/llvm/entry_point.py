"""The function of a module that is called from outside, and the data that passes compute about it.

A pass that computes data for the loader, such as the bytes of an arena, writes it to a module attribute, as JSON.
"""

from __future__ import annotations

import json
from typing import Any

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.functions import function_named, functions_of
from fx_importer.mlir.walk import rewrite, rewrite_with_options

_PREFIX = "fx_importer."


def write_fact(module: ir.Operation, name: str, value: Any) -> None:
    """Write the fact ``value``, which JSON can hold, to the attribute ``name`` of ``module``."""
    module.attributes[f"{_PREFIX}{name}"] = ir.StringAttr.get(json.dumps(value), module.context)


def read_fact(module: ir.Module | ir.Operation, name: str) -> Any:
    """Return the value of `write_fact`, with tuples for lists; None if no pass wrote it."""
    attributes = module.operation.attributes
    if f"{_PREFIX}{name}" not in attributes:
        return None
    return _with_tuples(json.loads(ir.StringAttr(attributes[f"{_PREFIX}{name}"]).value))


def required_fact(module: ir.Module | ir.Operation, name: str) -> Any:
    """Return the value of `write_fact`. Raises `UsageError` if no pass wrote it: then callers would pass too much."""
    value = read_fact(module, name)
    if value is None:
        raise UsageError(f"the module cannot be called: the pass did not run that determines '{name}'")
    return value


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(inner) for key, inner in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


@rewrite_with_options("fx-importer-entry-point")
def set_entry_point(module: ir.Operation, function: str = "main") -> None:
    """Make ``function`` the only public one. It only reads its tensors; memrefs are written."""
    entry = function_named(module, function)
    with module.context:
        for other in functions_of(module).values():
            other.attributes["sym_visibility"] = ir.StringAttr.get("private")
        entry.attributes["sym_visibility"] = ir.StringAttr.get("public")
        read_only = {"bufferization.writable": ir.BoolAttr.get(False)}
        attributes = entry.attributes["arg_attrs"] if "arg_attrs" in entry.attributes else [None] * len(entry.arguments)
        described = [
            {attribute.name: attribute.attr for attribute in ir.DictAttr(old)} if old else {} for old in attributes
        ]
        tensors = [isinstance(argument.type, ir.RankedTensorType) for argument in entry.arguments]
        entry.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [
                ir.DictAttr.get(old | read_only if is_tensor else old)
                for old, is_tensor in zip(described, tensors, strict=True)
            ]
        )


@rewrite("fx-importer-call-by-address")
def call_by_address(module: ir.Operation) -> None:
    """Have the entry point called by its C interface alone, which takes the addresses of descriptors.

    The JIT would generate another wrapper, which takes a time that is quadratic in the number of their words.
    """
    attributes = entry_point(module).attributes
    attributes["llvm.emit_c_interface"] = ir.UnitAttr.get(module.context)
    attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>", module.context)


def entry_point(module: ir.Module | ir.Operation) -> func_d.FuncOp:
    """Return the only public function of ``module``."""
    (entry,) = (function for function in functions_of(module).values() if _is_public(function))
    return entry


def _is_public(function: func_d.FuncOp) -> bool:
    attributes = function.attributes
    return "sym_visibility" not in attributes or ir.StringAttr(attributes["sym_visibility"]).value == "public"

"""Values, options and rules as Python that says them, for scripts that stand alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from fx_importer.options import LoweringOptions, Options

_BUILT_IN = ("aten", "prims")


class UnspeakableError(Exception):
    """A value that Python has no spelling for."""


class Raw(str):
    """Text that is Python already."""


def spelled(value: Any) -> str:
    """Return ``value`` as Python. Raises `UnspeakableError` where there is no spelling."""
    match value:
        case Raw():
            return value
        case float() if value != value or value in (float("inf"), float("-inf")):
            return f"float('{value}')"
        case bool() | int() | float() | complex() | str() | None:
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(spelled, value))}]"
        case torch.dtype() | torch.memory_format() | torch.layout():
            return str(value)
        case torch.device():
            return f"torch.{value!r}"
    raise UnspeakableError(value)


def call_spelled(function: str, args: Any, kwargs: Mapping[str, Any]) -> str:
    """Return a call as Python. Raises `UnspeakableError` for arguments that have no spelling."""
    return (
        f"{function}({', '.join([*map(spelled, args), *(f'{key}={spelled(each)}' for key, each in kwargs.items())])})"
    )


def lowering_spelled(options: LoweringOptions) -> list[str]:
    """Return keywords for `lower`: what is not the default. What is Python's is for `python_spelled`."""
    found: list[str] = []
    for name, default in vars(LoweringOptions()).items():
        value = getattr(options, name)
        if name != "pipeline" and value != default:
            found.append(f"{name}={value.value if isinstance(value, Enum) else value!r}")
    return found


def python_spelled(options: Options) -> tuple[list[str], list[str], list[str]]:
    """Return imports, keywords for `lower`, and lines that define functions, with a comment where the user has to.

    They are for the decompositions and the pipeline.
    """
    imports: list[str] = []
    keywords: list[str] = []
    remarks: list[str] = []
    given = options.decompositions
    if given.table is not None:
        keywords.append(f"decomposition_table={_rules(given.table, imports, remarks)}")
    if given.keep:
        keywords.append(f"keep={list(given.keep)}")
    if given.extra:
        keywords.append(f"extra={_rules(given.extra, imports, remarks)}")
    if (pipeline := options.lowering.pipeline) is not None:
        if callable(pipeline):
            _define("pipeline", "What makes the pipeline", pipeline, imports, remarks)
        else:
            remarks += [f"# No text holds the pipeline '{pipeline.name}': make it here.", "pipeline = None"]
        keywords.append("pipeline=pipeline")
    if (kind := options.output_type).base is not None:
        remarks.append(f"# Import here what defines the output type '{kind.value}', {kind.where}.")
    return list(dict.fromkeys(imports)), keywords, remarks


def definer_remark(operator: Any) -> list[str]:
    """Return a comment that asks for the import of what defines ``operator``, if it is of another library."""
    namespace = str(operator).partition(".")[0]
    return [] if namespace in _BUILT_IN else [f"# Import here what defines torch.ops.{namespace}."]


def _rules(rules: Mapping[Any, Callable[..., Any]], imports: list[str], remarks: list[str]) -> str:
    entries: list[str] = []
    for operator, rule in rules.items():
        variable = f"rule_{sum(not each.startswith('#') for each in remarks)}"
        _define(variable, f"The rule of {operator}", rule, imports, remarks)
        entries.append(f"torch.ops.{operator}: {variable}")
    return f"{{{', '.join(entries)}}}"


def _define(variable: str, what: str, value: Any, imports: list[str], remarks: list[str]) -> None:
    """Add the lines that make ``variable`` ``value``, a function; or ask for it, if it cannot be imported."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
    if module in (None, "__main__") or "<" in name:
        where = getattr(getattr(value, "__code__", None), "co_filename", "a place unknown")
        line = getattr(getattr(value, "__code__", None), "co_firstlineno", 0)
        remarks.append(f"# {what} cannot be imported: write it here. It is {name}, {where}:{line}.")
        remarks.append(f"{variable} = None")
    else:
        if root := _root(module):
            imports.append(f"sys.path.insert(0, {root!r})")
        imports.append(f"import {module}")
        remarks.append(f"{variable} = {module}.{name}")


def _root(module: str) -> str | None:
    """Return the directory that ``module`` is imported from, unless it is installed."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or "site-packages" in file:
        return None
    path = Path(file)
    levels = module.count(".") + (path.name == "__init__.py")
    return str(path.parents[levels])

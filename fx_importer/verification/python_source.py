"""Python source for values, options and decompositions, for reproducer scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from fx_importer.options import LoweringOptions, Options

_BUILT_IN = ("aten", "prims")


class NotPythonError(Exception):
    """A value that cannot be written as a Python expression."""


class Raw(str):
    """Python source text."""


def literal(value: Any) -> str:
    """Return ``value`` as a Python expression. Raises `NotPythonError` if there is none."""
    match value:
        case Raw():
            return value
        case float() if value != value or value in (float("inf"), float("-inf")):
            return f"float('{value}')"
        case bool() | int() | float() | complex() | str() | None:
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
        case torch.dtype() | torch.memory_format() | torch.layout():
            return str(value)
        case torch.device():
            return f"torch.{value!r}"
    raise NotPythonError(value)


def call_source(function: str, args: Any, kwargs: Mapping[str, Any]) -> str:
    """Return a call as a Python expression. Raises `NotPythonError` if an argument has none."""
    return (
        f"{function}({', '.join([*map(literal, args), *(f'{key}={literal(each)}' for key, each in kwargs.items())])})"
    )


def lowering_arguments(options: LoweringOptions) -> list[str]:
    """Return non-default keyword arguments for `lower`, without Python objects: see `python_arguments`."""
    found: list[str] = []
    for name, default in vars(LoweringOptions()).items():
        value = getattr(options, name)
        if name != "pipeline" and value != default:
            found.append(f"{name}={value.value if isinstance(value, Enum) else value!r}")
    return found


def python_arguments(options: Options) -> tuple[list[str], list[str], list[str]]:
    """Return imports, keyword arguments for `lower`, and lines that define the functions in them.

    They are for the decompositions and the pipeline. A comment says which functions the user must define.
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
            _define("pipeline", "The function of the pipeline", pipeline, imports, remarks)
        else:
            remarks += [
                f"# There is no text form of the pipeline '{pipeline.name}': define it here.",
                "pipeline = None",
            ]
        keywords.append("pipeline=pipeline")
    if (kind := options.output_type).base is not None:
        remarks.append(f"# Import here what defines the output type '{kind.value}', {kind.where}.")
    return list(dict.fromkeys(imports)), keywords, remarks


def definer_remark(operator: Any) -> list[str]:
    """Return a comment that asks to import the library of ``operator``, if it is a custom operator."""
    namespace = str(operator).partition(".")[0]
    return [] if namespace in _BUILT_IN else [f"# Import here what defines torch.ops.{namespace}."]


def _rules(rules: Mapping[Any, Callable[..., Any]], imports: list[str], remarks: list[str]) -> str:
    entries: list[str] = []
    for operator, rule in rules.items():
        variable = f"rule_{sum(not each.startswith('#') for each in remarks)}"
        _define(variable, f"The decomposition of {operator}", rule, imports, remarks)
        entries.append(f"torch.ops.{operator}: {variable}")
    return f"{{{', '.join(entries)}}}"


def _define(variable: str, what: str, value: Any, imports: list[str], remarks: list[str]) -> None:
    """Add lines that assign the function ``value`` to ``variable``, or a comment if it cannot be imported."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
    if module in (None, "__main__") or "<" in name:
        where = getattr(getattr(value, "__code__", None), "co_filename", "an unknown file")
        line = getattr(getattr(value, "__code__", None), "co_firstlineno", 0)
        remarks.append(f"# {what} cannot be imported: define it here. It is {name}, {where}:{line}.")
        remarks.append(f"{variable} = None")
    else:
        if root := _root(module):
            imports.append(f"sys.path.insert(0, {root!r})")
        imports.append(f"import {module}")
        remarks.append(f"{variable} = {module}.{name}")


def _root(module: str) -> str | None:
    """Return the import root of ``module``, unless it is installed."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or "site-packages" in file:
        return None
    path = Path(file)
    levels = module.count(".") + (path.name == "__init__.py")
    return str(path.parents[levels])

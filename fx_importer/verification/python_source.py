"""Python source for values, calls and options, for reproducer scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fx_importer.option_fields import declared
from fx_importer.options import ExportOptions, Options
from fx_importer.verification.definitions import Definitions
from fx_importer.verification.function_source import NotPythonError


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
        f"{function}({', '.join([*map(literal, args), *(f'{key}={literal(value)}' for key, value in kwargs.items())])})"
    )


def lower_arguments(options: Options, definitions: Definitions) -> list[str]:
    """Return the keyword arguments of `lower` for all options that a single operator depends on, without defaults.

    ``definitions`` collects what they need. Raises `NotPythonError` if a rule or a pass has no definition there.
    """
    arguments = [f"output_type={definitions.expression(options.output_type)}"]
    if options.export.quantized is not ExportOptions().quantized:
        arguments.append(f"quantized={definitions.expression(options.export.quantized)}")
    for group in (options.decompositions, options.lowering):
        for option in declared(type(group)):
            value = getattr(group, option.name)
            if option.keyword is not None and value != option.default:
                written = dict(value) if isinstance(value, Mapping) else value
                arguments.append(f"{option.keyword}={definitions.expression(written)}")
    return arguments

"""Conversion of the keywords of `lower` to `Options`, and the signature that `help` shows."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from fx_importer.errors import UsageError
from fx_importer.option_fields import Option
from fx_importer.options import CALL_OPTIONS, GROUPS, KEYWORDS, OPTIONS, Keywords, Mutation, Options
from fx_importer.output_types import OutputType, TosaTarget

_WITH_OPTIONS = {call_option.keyword for call_option in CALL_OPTIONS} - {"experimental_support_mutation"}
"""The keywords that can be passed together with ``options``."""


def signature_with_keywords(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function that takes `Keywords`, with the default of each keyword, for `help`."""
    signature = inspect.signature(function)
    *positional, rest = signature.parameters.values()
    named = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.keyword_default,
            annotation=getattr(Keywords.__annotations__[name], "__forward_arg__", Any),
        )
        for name, option in KEYWORDS.items()
    ]
    return signature.replace(parameters=[*positional, *named, rest.replace(name="model_kwargs", annotation=Any)])


def documented(docstring: str) -> str:
    """Return the docstring of a function that takes `Keywords`, with each keyword among its arguments."""
    before, after = docstring.split("        **keywords:")
    lines = [
        textwrap.fill(
            f"{name}: {option.keyword_help}",
            width=112,
            initial_indent=" " * 8,
            subsequent_indent=" " * 12,
            break_on_hyphens=False,
            break_long_words=False,
        )
        for name, option in KEYWORDS.items()
    ]
    return before + "\n".join(lines) + "\n        **keywords:" + after


def split_keywords(f: Any, keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keywords of a call of `lower` into options and arguments of the model ``f``.

    Raises:
        UsageError: for a keyword that is both, unless the call passes the model's keyword arguments in ``kwargs``.
    """
    from torch.export import ExportedProgram

    from fx_importer.frontend.example_inputs import parameters_of

    ours = {name: value for name, value in keywords.items() if name in KEYWORDS}
    if ours.get("kwargs") is None and not isinstance(f, ExportedProgram):
        for name in parameters_of(f):
            if name in ours:
                raise UsageError(
                    f"'{name}' is both an option of fx_importer and a parameter of the model: pass the model's own "
                    f"keyword arguments in kwargs={{...}}, for example kwargs={{'{name}': ...}}; with kwargs=, "
                    f"{name}= is the option"
                )
    rest = {name: value for name, value in keywords.items() if name not in KEYWORDS}
    return ours, {**rest, **(ours.get("kwargs") or {})}


def options_of(keywords: Mapping[str, Any]) -> Options:
    """Return the options given by keywords of `lower`, or by ``options``.

    Raises:
        UsageError: for an invalid value, or for keywords that ``options`` holds too.
    """
    if (whole := keywords.get("options")) is not None:
        if not isinstance(whole, Options):
            raise UsageError(f"options={whole!r} is of type {type(whole).__name__}: pass fx_importer.options.Options")
        if twice := [name for name in keywords if name not in _WITH_OPTIONS]:
            raise UsageError(
                f"options= holds all options, but {', '.join(map(repr, twice))} {'is' if len(twice) == 1 else 'are'} "
                "passed with it: set them in the Options, for example with dataclasses.replace, or pass only keywords"
            )
        return whole
    values = {option.name: _converted(option, keywords) for option in OPTIONS if option.keyword in keywords}
    if keywords.get("experimental_support_mutation", False):
        values["mutation"] = Mutation.MUTABLE
    groups = {
        group: kind.options(
            **{
                option.name: values[option.name]
                for option in OPTIONS
                if option.group == group and option.name in values
            }
        )
        for group, kind in GROUPS.items()
    }
    return Options(values.get("output_type", OutputType.RAW), **groups)


def _converted(option: Option, keywords: Mapping[str, Any]) -> Any:
    """Return the value of the field ``option`` for the value of its keyword. Raises `UsageError` for an invalid one."""
    value = keywords[option.keyword or ""]
    if option.name in _CONVERSIONS:
        return _CONVERSIONS[option.name](value, keywords)
    if isinstance(option.default, Enum):
        return type(option.default).get(value)  # type: ignore[attr-defined]
    return value


def _names(keyword: str) -> Callable[[Any, Mapping[str, Any]], tuple[str, ...]]:
    def convert(value: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
        if not isinstance(value or (), list | tuple) or not all(isinstance(name, str) for name in value or ()):
            raise UsageError(f"{keyword} is a list of names: {keyword}=['x', 'mask'], and not {value!r}")
        return tuple(value or ())

    return convert


def _keep(value: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise UsageError(f"keep is a list of operators: keep=[{value!r}]")
    return tuple(map(str, value))


def _table(value: Any, _: Mapping[str, Any]) -> Mapping[Any, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(
            f"decomposition_table={value!r} is of type {type(value).__name__}: decomposition_table maps operators to "
            "functions, as torch._decomp.get_decompositions([torch.ops.aten.gelu]) returns them"
        )
    return value


def _plan(value: Any, keywords: Mapping[str, Any]) -> str | None:
    if value is None:
        return None
    if keywords.get("mesh") is None:
        raise UsageError("plan= names axes of a mesh: pass it too, mesh='dp=2,tp=4'")
    from fx_importer.distributed import Mesh, Plan

    return str(Plan.get(value, Mesh.get(keywords["mesh"])))


def _mesh(value: Any, _: Mapping[str, Any]) -> str | None:
    if value is None:
        return None
    from fx_importer.distributed import Mesh

    return str(Mesh.get(value))


def _lowerings(value: Any, _: Mapping[str, Any]) -> tuple[Any, ...]:
    from fx_importer.lowerings import listed

    return listed(value)


def _fallback(value: Any, _: Mapping[str, Any]) -> tuple[OutputType, ...]:
    from fx_importer.lowerings import listed

    return tuple(OutputType.get(name) for name in listed(value))


_CONVERSIONS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "output_type": lambda value, _: OutputType.get(value),
    "keep": _keep,
    "table": _table,
    "extra": lambda value, _: dict(value or {}),
    "mesh": _mesh,
    "input_names": _names("input_names"),
    "output_names": _names("output_names"),
    "plan": _plan,
    "backend_legal_ops": lambda value, _: tuple(value or ()),
    "lowerings": _lowerings,
    "fallback": _fallback,
    "tosa_target": lambda value, _: None if value is None else TosaTarget.get(value),
    "dump_dir": lambda value, _: os.fspath(value) if value else None,
}
"""Conversions of values that a keyword accepts in several spellings, by option; policies convert themselves."""

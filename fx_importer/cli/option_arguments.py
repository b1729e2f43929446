"""Command-line options derived from the fields of the option dataclasses."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from fx_importer.diagnostics.options_text import options_from_text
from fx_importer.errors import UsageError
from fx_importer.option_fields import Option
from fx_importer.options import GROUPS, OPTIONS, Options, TosaTarget
from fx_importer.output_types import OutputType

ON_COMMAND_LINE = {option.name: option for option in OPTIONS if option.has_text}
"""The options of the command line, by name."""


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` with its parameter ``options: Options`` expanded to one parameter per option.

    Defaults come from the default of ``options``, if it has one. Options that ``command`` declares itself take
    precedence.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    own = [p for p in parameters.values() if p.name != "options"]
    declared = parameters["options"].default
    names = {p.name for p in own}
    derived = [
        p for p in _parameters(Options() if declared is inspect.Parameter.empty else declared) if p.name not in names
    ]
    defaults = _defaults()

    @functools.wraps(command)
    def run(**values: Any) -> None:
        chosen = {p.name: values[p.name] for p in derived}
        if (devices := values.get("devices")) is not None:
            chosen["mesh"] = mesh_text(chosen["mesh"], devices)
        if chosen.get("plan") is not None:
            from fx_importer.cli.plan_loading import plan_text  # which imports torch

            chosen["plan"] = plan_text(chosen["plan"], chosen["mesh"])
        options = options_from_text(defaults | chosen)
        command(**{name: values[name] for name in names}, options=options)

    spelled = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*own, *derived]]
    # Typer reads both the signature and the annotations.
    run.__signature__ = inspect.Signature(spelled)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in spelled}
    return run


def mesh_text(mesh: str | None, devices: int) -> str:
    """Return ``mesh``, or one with a single axis of ``devices``. Raises `UsageError` if the numbers differ."""
    if mesh is None:
        return f"devices={devices}"
    from fx_importer.distributed.mesh import Mesh

    if (size := Mesh.get(mesh).size) != devices:
        raise UsageError(f"--devices {devices}: the mesh {mesh} has {size}")
    return mesh


def _parameters(defaults: Options) -> list[inspect.Parameter]:
    """Return the options as typer parameters, with the name, default and type of each field."""
    return [_parameter(option, defaults) for option in ON_COMMAND_LINE.values()]


@functools.cache
def _defaults() -> dict[str, Any]:
    """Return the default of each option, as typer has it."""
    return {parameter.name: parameter.default for parameter in _parameters(Options())}


_hints = functools.cache(get_type_hints)
"""Types of the fields of a class, evaluated once for all options of a group."""


def _parameter(option: Option, defaults: Options) -> inspect.Parameter:
    group = getattr(defaults, option.group) if option.group else defaults
    hint, default = _hints(type(group))[option.name], getattr(group, option.name)
    flag, metavar = option.flag, option.metavar
    if (hint is bool and default) or hint == bool | None:
        flag = f"{flag}/--no-{flag[2:]}"
    elif hint is OutputType or (isinstance(hint, type) and issubclass(hint, Enum)):
        # Typer accepts only the exact values; the enumeration's own parser accepts all usual spellings.
        hint, default, metavar = str, default.value, "|".join(member.value for member in hint)
    elif hint == TosaTarget | None:
        hint = str | None
    is_list = get_origin(hint) is tuple
    if is_list:
        hint, default, metavar = list[str], list(default), metavar or "OP"
    heading = GROUPS[option.group].heading if option.group else None
    typer_option = typer.Option(flag, help=help_of(option, is_list), metavar=metavar, rich_help_panel=heading)
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, typer_option]
    )


def help_of(option: Option, is_list: bool) -> str:
    """Return the help of a command-line option."""
    sentences = (option.help, option.command, "May be repeated." if is_list else "")
    return with_options(" ".join(filter(None, sentences)))


def with_options(message: str) -> str:
    """Return ``message`` with keywords of `lower` spelled as options: ``isolate=True`` becomes ``--isolate``.

    Keywords that no command has as an option, such as ``extra=``, stay, and so do source lines, which follow ``at``.
    """
    lines: list[str] = []
    after_place = False
    for line in message.split("\n"):
        place = line.lstrip().startswith("at ")
        source = after_place and not line.lstrip().startswith("try: ")
        lines.append(line if place or source else _KEYWORD.sub(_option, line))
        after_place = place
    return "\n".join(lines)


_KEYWORD = re.compile(
    rf"\b(?P<name>{'|'.join(ON_COMMAND_LINE)})=(?:'(?P<text>[^']*)'|(?P<bool>True|False)\b|(?=[\s,.;:)]|$))"
)


def _option(keyword: re.Match[str]) -> str:
    name = keyword["name"].replace("_", "-")
    if keyword["bool"]:
        return f"{'' if keyword['bool'] == 'True' else 'without '}--{name}"
    return f"--{name}" + (f" {keyword['text']}" if keyword["text"] is not None else "")

"""Command-line options derived from the fields of the option dataclasses."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from fx_importer.diagnostics.options_text import GROUPS, fields_with_text, options_from_text
from fx_importer.errors import UsageError
from fx_importer.options import Options, TosaTarget
from fx_importer.output_types import OutputType

HELP = {
    "output_type": "The output type to lower to.",
    "strict": "Let torch.export trace through Python bytecode.",
    "quantized": "How to compute between dequantize and quantize operators: in floats or in integers.",
    "keep": "A torch op to keep undecomposed, spelled aten.foo or aten.foo.default. May be repeated.",
    "func_name": "The name of the function.",
    "mutation": "How to lower mutated state: reject it, return the new values as results, or overwrite it in place.",
    "weights": "Where parameters and buffers are: in the module, external resources of the module, or arguments.",
    "symbolic_shapes": "Emit torch.symbolic_int and torch.bind_symbolic_shape.",
    "runtime_asserts": "Emit the program's assertions, and the size ranges of its inputs, as runtime assertions.",
    "outline_layers": "Outline submodules that compute the same into one function, called for each.",
    "input_names": "The name of an input, in their order: one option for each.",
    "output_names": "The name of an output, in their order: one option for each.",
    "mesh": "The mesh of devices that the program runs on, 'dp=2,tp=4'.",
    "plan": "What XLA divides among them: a JSON file, or package.module:name of a mapping or a function of the mesh.",
    "backend_legal_ops": "A torch op that the torch backend stage must keep, spelled aten.foo. May be repeated.",
    "allow_non_finites": "Whether a lowering may emit infinities.",
    "contract": "What to do if the module contains illegal operations or types for its output type: fail, or warn.",
    "unsupported": "What to do with unsupported operators: fail, or declare a function for each (a stub).",
    "lowerings": "Lowerings of operators from an installed package, or package.module:name. May be repeated.",
    "fallback": "An output type for operators that the requested one does not support. May be repeated.",
    "narrow_integers": "For TOSA: replace 64-bit integers by 32-bit ones, including arguments and results.",
    "narrow_floats": "For TOSA: replace float64 by float32, including arguments and results; by default, inside only.",
    "isolate": "Run the passes in a separate process: a crash becomes an error with a report.",
    "time_limit": "Time limit of a stage of passes, in seconds. For --isolate.",
    "memory_limit": "Limit of the process's private memory in bytes, without mapped weights. For --isolate.",
    "dump_dir": "Directory for failure reports and dumps, each in a new subdirectory. Default: FX_IMPORTER_DUMP_DIR.",
    "dump_ir": "Dump the IR before and after the stages with matching names, with the time of each.",
    "cache": "Read the result from the cache, or add it. Default: only if FX_IMPORTER_CACHE_DIR is set.",
    "tosa_target": "TOSA target to validate for, 'version=1.0 profiles=pro_int,pro_fp extensions=bf16 level=8k'.",
}

HEADINGS = {
    "export": "Export",
    "decompositions": "Decompositions and quantization",
    "importing": "Import",
    "lowering": "Passes",
    "running": "How it runs, and diagnosis",
}
"""Headings of the options in the help, by fields of `Options`."""

METAVARS = {
    "lowerings": "NAME",
    "fallback": "|".join(member.value for member in OutputType),
    "input_names": "NAME",
    "output_names": "NAME",
    "mesh": "AXES",
    "plan": "PLAN",
    "time_limit": "SECONDS",
    "memory_limit": "BYTES",
    "dump_dir": "DIRECTORY",
    "dump_ir": "REGEX",
}


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` with its parameter ``options: Options`` expanded to one parameter per option.

    Defaults come from the default of ``options``, if it has one. Options that ``command`` declares itself take
    precedence.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    own = [p for p in parameters.values() if p.name != "options"]
    given = parameters["options"].default
    names = {p.name for p in own}
    derived = [p for p in _parameters(Options() if given is inspect.Parameter.empty else given) if p.name not in names]
    defaults = {p.name: p.default for p in _parameters(Options())}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {p.name: values[p.name] for p in derived}
        if (devices := values.get("devices")) is not None:
            given["mesh"] = mesh_text(given["mesh"], devices)
        if given.get("plan") is not None:
            from fx_importer.cli.plan_loading import plan_text  # which imports torch

            given["plan"] = plan_text(given["plan"], given["mesh"])
        options = options_from_text(defaults | given)
        command(**{name: values[name] for name in names}, options=options)

    spelled = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*own, *derived]]
    # Typer reads both the signature and the annotations.
    run.__signature__ = inspect.Signature(spelled)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in spelled}
    return run


def mesh_text(mesh: str | None, devices: int) -> str:
    """Return ``mesh``, or one with a single axis of ``devices``. Raises `UsageError` if it has not as many."""
    if mesh is None:
        return f"devices={devices}"
    from fx_importer.distributed.mesh import Mesh

    if (size := Mesh.get(mesh).size) != devices:
        raise UsageError(f"--devices {devices}: the mesh {mesh} has {size}")
    return mesh


def _parameters(defaults: Options) -> list[inspect.Parameter]:
    """Return the options as typer parameters, with the name, default and type of each field."""
    groups = [(field, getattr(defaults, field), fields_with_text(group)) for field, group in GROUPS.items()]
    fields = [
        ("", defaults, "output_type"),
        *((field, group, name) for field, group, names in groups for name in names),
    ]
    return [
        _parameter(name, get_type_hints(type(group))[name], getattr(group, name), HEADINGS.get(field))
        for field, group, name in fields
    ]


def _parameter(name: str, hint: Any, default: Any, heading: str | None) -> inspect.Parameter:
    flag, metavar = f"--{name.replace('_', '-')}", None
    if (hint is bool and default) or hint == bool | None:
        flag = f"{flag}/--no-{flag[2:]}"
    elif hint is OutputType or (isinstance(hint, type) and issubclass(hint, Enum)):
        # Typer accepts only the exact values; the enumeration's own parser accepts all usual spellings.
        hint, default, metavar = str, default.value, "|".join(member.value for member in hint)
    elif hint == TosaTarget | None:
        hint, metavar = str | None, "TARGET"
    elif name in METAVARS:
        metavar = METAVARS[name]
    if get_origin(hint) is tuple:
        hint, default, metavar = list[str], list(default), metavar or "OP"
    option = typer.Option(flag, help=HELP[name], metavar=metavar, rich_help_panel=heading)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option])


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


_KEYWORD = re.compile(rf"\b(?P<name>{'|'.join(HELP)})=(?:'(?P<text>[^']*)'|(?P<bool>True|False)\b|(?=[\s,.;:)]|$))")


def _option(keyword: re.Match[str]) -> str:
    name = keyword["name"].replace("_", "-")
    if keyword["bool"]:
        return f"{'' if keyword['bool'] == 'True' else 'without '}--{name}"
    return f"--{name}" + (f" {keyword['text']}" if keyword["text"] is not None else "")

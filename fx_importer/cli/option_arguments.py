"""Command-line options derived from the fields of the option dataclasses."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from fx_importer.options import GROUPS, Options, TosaTarget, fields_with_text, options_from_text
from fx_importer.output_types import OutputType

HELP = {
    "output_type": "What to lower to.",
    "strict": "Let torch.export trace through Python bytecode.",
    "keep": "A torch op that is not decomposed, spelled aten.foo or aten.foo.default. May be repeated.",
    "func_name": "The name of the function.",
    "mutation": "What becomes of state that the program mutates: refuse it, make it results, or overwrite it in place.",
    "weights": "Where parameters and buffers are: in the module, or elsewhere, named by it or as arguments.",
    "symbolic_shapes": "Emit torch.symbolic_int and torch.bind_symbolic_shape.",
    "runtime_asserts": "Emit what the program asserts, and the ranges of its inputs' sizes, as assertions.",
    "outline_layers": "Make a function of submodules that compute the same, and call it for each.",
    "backend_legal_ops": "A torch op to leave whole, spelled aten.foo. May be repeated.",
    "allow_non_finites": "Whether a lowering may emit infinities.",
    "contract": "What becomes of a module that holds what its output type may not: fail, or warn.",
    "unsupported": "What becomes of an operator that the output type cannot take: fail, or declare a function for it.",
    "lowerings": "Rules for operators that a package offers, or package.module:name. May be repeated.",
    "fallback": "An output type that takes what the one that is asked for cannot. May be repeated.",
    "narrow_integers": "For TOSA: integers of 32 bits in the place of 64, arguments and results included.",
    "isolate": "Run the passes in a process of their own: what crashes it is an error, with a report.",
    "time_limit": "Seconds that a stage of passes may take. For --isolate.",
    "memory_limit": "Bytes of memory that the process may have to itself, mapped weights apart. For --isolate.",
    "dump_dir": "Where reports of failures and dumps go, each in a new directory; else FX_IMPORTER_DUMP_DIR says it.",
    "dump_ir": "Write down what is before and after the stages of such names, with the time that each took.",
    "cache": "Take the outcome from the cache if it is there, and keep it; without, if FX_IMPORTER_CACHE_DIR is set.",
    "tosa_target": "What TOSA is to be valid for, 'version=1.0 profiles=pro_int,pro_fp extensions=bf16 level=8k'.",
}

METAVARS = {
    "lowerings": "NAME",
    "fallback": "|".join(member.value for member in OutputType),
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
        options = options_from_text(defaults | {p.name: values[p.name] for p in derived})
        command(**{name: values[name] for name in names}, options=options)

    spelled = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*own, *derived]]
    # Typer reads both the signature and the annotations.
    run.__signature__ = inspect.Signature(spelled)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in spelled}
    return run


def _parameters(defaults: Options) -> list[inspect.Parameter]:
    """Return the options as typer parameters, with the name, default and type of each field."""
    groups = [(getattr(defaults, field), fields_with_text(group)) for field, group in GROUPS.items()]
    fields = [(defaults, "output_type"), *((group, name) for group, names in groups for name in names)]
    return [_parameter(name, get_type_hints(type(group))[name], getattr(group, name)) for group, name in fields]


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
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
    option = typer.Option(flag, help=HELP[name], metavar=metavar)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option])

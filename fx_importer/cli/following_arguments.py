"""The command-line options of `Following`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fx_importer.cli.following import Following

_HEADING = "Reports, and IR on standard error"

Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Also write the explorer: a .html file, or a .json file with its data.",
        rich_help_panel=_HEADING,
    ),
]
Reports = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Also write the explorer for each output type: model.html becomes model.tosa.html, model.json too.",
        rich_help_panel=_HEADING,
    ),
]

_OPTIONS = {
    "report": Report,
    "print_ir_after": Annotated[
        list[str] | None,
        typer.Option(
            metavar="PASS",
            help="Print the IR after this pass or stage. May be repeated.",
            rich_help_panel=_HEADING,
        ),
    ],
    "print_ir_after_change": Annotated[
        bool,
        typer.Option(
            "--print-ir-after-change",
            help="Print the IR after each pass that changed it, or each that is named.",
            rich_help_panel=_HEADING,
        ),
    ],
    "print_ir_diff": Annotated[
        bool,
        typer.Option(
            "--print-ir-diff",
            help="Print what each pass changed, or each that is named, as a diff.",
            rich_help_panel=_HEADING,
        ),
    ],
    "timing": Annotated[
        bool,
        typer.Option(
            "--timing",
            help="Print the time of each stage and pass, and the operations after it.",
            rich_help_panel=_HEADING,
        ),
    ],
}


def takes_following(command: Callable[..., None], report: bool = True) -> Callable[..., None]:
    """Return ``command`` with its parameter ``following: Following`` expanded to one parameter per option.

    ``report``: whether ``--report`` is one of them.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    own = [parameter for parameter in parameters.values() if parameter.name != "following"]
    accepted = {name: hint for name, hint in _OPTIONS.items() if report or name != "report"}
    defaults = Following()

    @functools.wraps(command)
    def run(**values: Any) -> None:
        chosen = {name: values.pop(name) for name in accepted}
        chosen["print_ir_after"] = tuple(chosen["print_ir_after"] or ())
        command(**values, following=Following(**chosen))

    derived = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if name == "print_ir_after" else getattr(defaults, name),
            annotation=hint,
        )
        for name, hint in accepted.items()
    ]
    spelled = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in [*own, *derived]]
    # Typer reads both the signature and the annotations.
    run.__signature__ = inspect.Signature(spelled)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in spelled}
    return run

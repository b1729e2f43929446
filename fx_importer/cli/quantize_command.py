"""The arguments of ``fx-importer quantize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.model_arguments import Json, Model, Trust


def quantize(
    model: Model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the quantized program, a .pt2 file.")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Calibration inputs, written by torch.save([(args, kwargs), ...], FILE). Default: the example inputs.",
        ),
    ] = None,
    integer_io: Annotated[
        bool, typer.Option("--integer-io", help="Let quantized inputs and results of the model be int8.")
    ] = False,
    keep_float: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A module or a value that stays in floating point. May be repeated."),
    ] = None,
    activations: Annotated[
        str,
        typer.Option(metavar="KIND", help="int8, int16, or mixed: int16 for sums, norms and what these come from."),
    ] = "int8",
    tries: Annotated[
        int,
        typer.Option(min=0, help="Also try the worst layer in floating point, then the two worst, four, and so on."),
    ] = 0,
    json: Json = None,
    trust: Trust = False,
) -> None:
    """Quantize a model to int8 or int16, and show its accuracy."""
    from fx_importer.cli.commands.quantize import quantize_model

    quantize_model(model, output, inputs, integer_io, tuple(keep_float or ()), activations, tries, trust, json)

"""The arguments of ``fx-importer vela``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.following import Following
from fx_importer.cli.following_arguments import takes_following
from fx_importer.cli.shared_arguments import Model, Trust


@takes_following
def vela(
    model: Model,
    accelerator: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="The accelerator, such as ethos-u85-256. May be repeated."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write what Vela compiles: .tflite, or .h, arrays of C."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Calibration inputs of a float model, written by torch.save([(args, kwargs), ...], FILE). Default: "
            "its example inputs, which suffice for an estimate.",
        ),
    ] = None,
    activations: Annotated[
        str, typer.Option(metavar="KIND", help="For a float model: int8, int16 or mixed, as in `fx-importer quantize`.")
    ] = "int8",
    system_config: Annotated[
        str | None, typer.Option(metavar="NAME", help="Vela's system configuration. Default: the accelerator's.")
    ] = None,
    memory_mode: Annotated[
        str | None, typer.Option(metavar="NAME", help="Vela's memory mode. Default: the accelerator's.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Vela's file of system configurations and memory modes.")
    ] = None,
    optimise: Annotated[
        str | None, typer.Option(metavar="NAME", help="Vela's strategy: Performance (its default) or Size.")
    ] = None,
    nhwc: Annotated[
        bool, typer.Option("--nhwc", help="Let inputs of rank 4 have channels last, as cameras write them.")
    ] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the estimates as JSON.")] = None,
    following: Following = Following(),  # noqa: B008 - it is frozen
    trust: Trust = False,
) -> None:
    """Compile a model for an Arm Ethos-U processor by Vela.

    Vela's estimate of cycles and memory is printed. A float model is quantized first.
    """
    from fx_importer.cli.commands.vela import check_vela_options, compile_model

    check_vela_options(config, optimise)
    options = {
        "--config": config and str(config),
        "--system-config": system_config,
        "--memory-mode": memory_mode,
        "--optimise": optimise,
    }
    words = tuple(word for name, value in options.items() if value for word in (name, value))
    compile_model(model, accelerator, output, inputs, words, json, following, trust, activations, nhwc)

"""The commands on a model, and their arguments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.following import Following
from fx_importer.cli.following_arguments import Report, Reports, takes_following
from fx_importer.cli.option_arguments import takes_options
from fx_importer.cli.shared_arguments import OUTPUT_TYPES, Device, Json, Model, Trust
from fx_importer.engines.engine_table import module_engines
from fx_importer.options import Options
from fx_importer.output_types import OutputType

models = typer.Typer()
"""Commands that `fx_importer.cli.app` adds to its own."""


@models.command("import")
@takes_following
@takes_options
def import_(
    model: Model,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A .mlir file (text), a .mlirbc file (bytecode), a .stablehlo file (portable artifact), or - (text "
            "to standard output).",
        ),
    ],
    options: Options = Options(),  # noqa: B008 - it is frozen
    output_type: Annotated[
        str | None,
        typer.Option(
            metavar=OUTPUT_TYPES,
            help="The output type to lower to. Default: linalg-on-tensors, or stablehlo for a .stablehlo file.",
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the manifest (inputs, outputs and state) as JSON."),
    ] = None,
    weights_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --weights external or args: the file or directory to read the weights from; if it does not "
            "exist, the .safetensors or .irpa file to write them to.",
        ),
    ] = None,
    module_paths: Annotated[
        bool,
        typer.Option(
            "--module-paths", help="Write locations as slash-separated module paths, by which Model Explorer groups."
        ),
    ] = False,
    locations: Annotated[
        bool, typer.Option("--locations", help="Write locations to text too; bytecode always has them.")
    ] = False,
    json: Json = None,
    following: Following = Following(),  # noqa: B008
    trust: Trust = False,
) -> None:
    """Lower a model to MLIR, and write the module."""
    from fx_importer.cli.commands.import_model import import_model

    default = OutputType.STABLEHLO if output.endswith(".stablehlo") else OutputType.LINALG_ON_TENSORS
    options = replace(options, output_type=default if output_type is None else OutputType.get(output_type))
    import_model(
        model,
        output,
        options,
        manifest,
        weights_file,
        module_paths,
        following,
        trust,
        json,
        by_default=output_type is None,
        locations=locations,
    )


@models.command()
@takes_following
@takes_options
def verify(
    model: Model,
    backend: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A backend to run it on. May be repeated. Default: all installed backends."),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="With --plan: the number of devices; without --mesh, of its only axis.")
    ] = None,
    device: Device = "cpu",
    rtol: Annotated[float | None, typer.Option(help="Relative tolerance, instead of the dtype's own.")] = None,
    atol: Annotated[float | None, typer.Option(help="Absolute tolerance, instead of the dtype's own.")] = None,
    bisect: Annotated[
        bool,
        typer.Option(
            "--bisect",
            help="On a mismatch, find the pass after which numbers differ and the first operation that differs; write "
            "a script of it.",
        ),
    ] = False,
    json: Json = None,
    options: Options = Options(output_type=OutputType.LINALG_ON_TENSORS),  # noqa: B008 - it is frozen
    following: Following = Following(),  # noqa: B008
    trust: Trust = False,
) -> None:
    """Lower a model, run it, and compare with eager PyTorch.

    The exit code is 1 on a mismatch.
    """
    from fx_importer.cli.commands.verify import verify_model

    if not verify_model(model, options, backend, rtol, atol, bisect, following, trust, json, device):
        raise typer.Exit(1)


@models.command()
@takes_options
def reduce(
    model: Model,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="The directory to create for the result.")
    ] = Path("reduced"),
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The backend that mismatches eager PyTorch, if that is the failure."),
    ] = None,
    rtol: Annotated[float | None, typer.Option(help="Relative tolerance, instead of the dtype's own.")] = None,
    atol: Annotated[float | None, typer.Option(help="Absolute tolerance, instead of the dtype's own.")] = None,
    report: Report = None,
    json: Json = None,
    options: Options = Options(output_type=OutputType.LINALG_ON_TENSORS),  # noqa: B008 - it is frozen
    trust: Trust = False,
) -> None:
    """Reduce a failing model to the smallest program that fails.

    It fails in the same way. A script that reproduces it is written.
    """
    from fx_importer.cli.commands.reduce import reduce_model

    reduce_model(model, options, output, backend, rtol, atol, report, trust, json)


@models.command()
@takes_options
def matrix(
    model: Model,
    output_type: Annotated[
        list[str] | None,
        typer.Option(metavar=OUTPUT_TYPES, help="An output type. May be repeated. Default: all but raw."),
    ] = None,
    backend: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A backend. May be repeated. Default: all.")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Input sets, written by torch.save([(args, kwargs), ...], FILE)."),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table as JSON.")] = None,
    report: Reports = None,
    options: Options = Options(),  # noqa: B008 - it is frozen
    trust: Trust = False,
) -> None:
    """Verify a model in every output type on every backend.

    Each is compared with eager PyTorch, and the exit code is 1 if one does not agree.
    """
    from fx_importer.cli.commands.matrix import OUTPUT_TYPES, show_matrix

    kinds = [OutputType.get(name) for name in output_type or ()] or OUTPUT_TYPES
    if not show_matrix(model, options, kinds, backend, inputs, json, report, trust):
        raise typer.Exit(1)


@models.command()
@takes_options
def bench(
    model: Model,
    engines: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Engines to compare with eager PyTorch, separated by commas: inductor, onnxruntime, openvino, "
            f"{', '.join(engine.name for engine in module_engines() if engine.benchmarked)}. Default: all.",
        ),
    ] = "",
    output_type: Annotated[
        list[str] | None,
        typer.Option(
            metavar=OUTPUT_TYPES,
            help="An output type to lower to. May be repeated. Default: those that the engines take directly.",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads, on as many processors. Default: as PyTorch does.")
    ] = None,
    calls: Annotated[
        int,
        typer.Option(min=1, help="Turns of each engine: calls, or of short calls the means of 50 ms of them."),
    ] = 10,
    device: Device = "cpu",
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write all figures as JSON.")] = None,
    report: Reports = None,
    options: Options = Options(),  # noqa: B008 - it is frozen
    trust: Trust = False,
) -> None:
    """Time a model on engines, eager PyTorch and Inductor.

    The fastest is recommended.
    """
    import torch

    from fx_importer.cli.commands.bench import bench_model

    names = [name.strip() for name in engines.split(",") if name.strip()]
    kinds = [OutputType.get(name) for name in output_type or ()]
    threads = threads or torch.get_num_threads()
    bench_model(model, options, names, kinds, threads, calls, json, report, trust, device)


@models.command()
@takes_options
def explain(
    model: Model,
    output_type: Annotated[
        list[str] | None,
        typer.Option(metavar=OUTPUT_TYPES, help="An output type. May be repeated. Default: all with a backend."),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the result as JSON.")] = None,
    options: Options = Options(),  # noqa: B008 - it is frozen
    trust: Trust = False,
) -> None:
    """List unsupported operators before lowering.

    Each has its source lines and advice. The exit code is 1 if there are any.
    """
    from fx_importer.cli.commands.explain import explain_model
    from fx_importer.targets import EXECUTABLE

    if not explain_model(model, options, [OutputType.get(name) for name in output_type or EXECUTABLE], json, trust):
        raise typer.Exit(1)


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

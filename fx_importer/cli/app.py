"""The commands of ``fx-importer`` and their arguments."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.file_app import files
from fx_importer.cli.llm_app import llm
from fx_importer.cli.model_arguments import Model, Trust
from fx_importer.cli.option_arguments import takes_options
from fx_importer.cli.quantize_command import quantize
from fx_importer.cli.vela_command import vela
from fx_importer.cli.view_command import view
from fx_importer.options import DecompositionOptions, ExportOptions, Options
from fx_importer.output_types import OutputType

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes truncate option names on a narrow terminal
    context_settings={"help_option_names": ["-h", "--help"]},
)

OUTPUT_TYPES = "|".join(member.value for member in OutputType)


def _print_versions(wanted: bool) -> None:
    if wanted:
        for name in ("fx-importer", "torch", "torch-mlir"):
            print(name, version(name))
        raise typer.Exit


@app.callback()
def fx_importer(
    versions: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_versions, help="Print the versions and exit."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the Python traceback of an error.")] = False,
) -> None:
    """Lower PyTorch models to MLIR."""


@app.command("import")
@takes_options
def import_(
    model: Model,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A .mlir file (text), a .mlirbc file (bytecode), or - (text to stdout).",
        ),
    ],
    options: Options,
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
    trust: Trust = False,
) -> None:
    """Import a model and lower it to an output type."""
    from fx_importer.cli.commands.import_model import import_model

    import_model(model, output, options, manifest, weights_file, trust)


app.add_typer(files)


@app.command()
@takes_options
def verify(
    model: Model,
    backend: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A backend to run it on. May be repeated. Default: all installed backends."),
    ] = None,
    rtol: Annotated[float | None, typer.Option(help="Relative tolerance, instead of the dtype's own.")] = None,
    atol: Annotated[float | None, typer.Option(help="Absolute tolerance, instead of the dtype's own.")] = None,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="On a mismatch, find the first operation that differs, and write a script.")
    ] = False,
    options: Options = Options(output_type=OutputType.LINALG_ON_TENSORS),  # noqa: B008 - it is frozen
    trust: Trust = False,
) -> None:
    """Lower a model, run it on backends, and compare with eager PyTorch; the exit code is 1 on a mismatch."""
    from fx_importer.cli.commands.verify import verify_model

    if not verify_model(model, options, backend, rtol, atol, bisect, trust):
        raise typer.Exit(1)


@app.command()
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
    options: Options = Options(output_type=OutputType.LINALG_ON_TENSORS),  # noqa: B008 - it is frozen
    trust: Trust = False,
) -> None:
    """Reduce a failing model to the smallest program with the same failure, and write a script that reproduces it."""
    from fx_importer.cli.commands.reduce import reduce_model

    reduce_model(model, options, output, backend, rtol, atol, trust)


@app.command()
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
    options: Options = Options(),  # noqa: B008 - it is frozen
    trust: Trust = False,
) -> None:
    """Lower a model to every output type, run each on every installed backend, and compare with eager PyTorch."""
    from fx_importer.cli.commands.matrix import OUTPUT_TYPES, show_matrix

    kinds = [OutputType.get(each) for each in output_type or ()] or OUTPUT_TYPES
    if not show_matrix(model, options, kinds, backend, inputs, json, trust):
        raise typer.Exit(1)


@app.command()
@takes_options
def bench(
    model: Model,
    engines: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Engines beside eager PyTorch, separated by commas: inductor, jit, iree, xla. Default: all.",
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
        typer.Option(min=1, help="Turns of each engine: calls, or of short calls the means of 20 ms of them."),
    ] = 10,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write all figures as JSON.")] = None,
    options: Options = Options(),  # noqa: B008 - it is frozen
    trust: Trust = False,
) -> None:
    """Measure a model on engines beside eager PyTorch and Inductor, and recommend one."""
    import torch

    from fx_importer.cli.commands.bench import bench_model

    names = [each.strip() for each in engines.split(",") if each.strip()]
    kinds = [OutputType.get(each) for each in output_type or ()]
    bench_model(model, options, names, kinds, threads or torch.get_num_threads(), calls, json, trust)


@app.command()
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
    """Report unsupported operators before lowering, with locations and advice; the exit code is 1 if any are found."""
    from fx_importer.cli.commands.explain import explain_model
    from fx_importer.targets import EXECUTABLE

    if not explain_model(model, options, [OutputType.get(each) for each in output_type or EXECUTABLE], json, trust):
        raise typer.Exit(1)


@app.command()
def pipelines(
    output_type: Annotated[
        str | None, typer.Option(metavar=OUTPUT_TYPES, help="Only the pipeline of this output type.")
    ] = None,
) -> None:
    """List the named pipelines, their stages, and the passes of each in MLIR's syntax."""
    from fx_importer.cli.commands.pipelines import list_pipelines

    list_pipelines(None if output_type is None else OutputType.get(output_type))


@app.command()
def decompositions(
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="A .pt2 file or package.module:callable, as `import` takes it."),
    ] = None,
    output_type: Annotated[str, typer.Option(metavar=OUTPUT_TYPES, help="The output type of the table.")] = "raw",
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="OP", help="A torch op to keep undecomposed, spelled aten.foo. May be repeated."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let torch.export trace through Python bytecode.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the tables as JSON.")] = None,
    trust: Trust = False,
) -> None:
    """List the operators that are decomposed or kept, with reasons; for a model, those before and after."""
    from fx_importer.cli.commands.decompositions import show_decompositions

    chosen = DecompositionOptions(keep=tuple(keep or ()))
    options = Options(OutputType.get(output_type), ExportOptions(strict=strict), chosen)
    show_decompositions(model, options, json, trust)


app.add_typer(llm, name="llm")
app.command()(quantize)
app.command()(vela)
app.command()(view)


@app.command()
def doctor(
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the findings as JSON.")] = None,
) -> None:
    """Check the installation; the exit code is 1 if models cannot be lowered."""
    from fx_importer.cli.commands.doctor import show_checkup

    if not show_checkup(json):
        raise typer.Exit(1)


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all entries.")] = False,
) -> None:
    """Show the size and location of the cache of lowerings (--cache), or clear it."""
    from fx_importer.cli.commands.cache import show_cache

    show_cache(clear)


@app.command()
def reproduce(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The report directory that an error message names.")],
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the functions and programs that the report names as its own.")
    ] = False,
) -> None:
    """Rerun the report of a failure; the exit code is 0 if it fails in the same way, and 1 otherwise."""
    from fx_importer.cli.commands.reproduce import reproduce_report

    if not reproduce_report(directory, trust):
        raise typer.Exit(1)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIRECTORY", help="The directory for the modules.")] = Path("out"),
) -> None:
    """Lower a sentence encoder with real weights to every output type, and run it."""
    from fx_importer.cli.demo import run_demo

    run_demo(out)

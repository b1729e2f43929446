"""Commands that take no model, or inspect the installation, and their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.option_arguments import takes_options
from fx_importer.cli.shared_arguments import OUTPUT_TYPES, Json, Trust
from fx_importer.options import DecompositionOptions, ExportOptions, Options
from fx_importer.output_types import OutputType

environment = typer.Typer()
"""Commands that `fx_importer.cli.app` adds to its own."""


@environment.command()
def pipelines(
    output_type: Annotated[
        str | None, typer.Option(metavar=OUTPUT_TYPES, help="Only the pipeline of this output type.")
    ] = None,
    json: Json = None,
) -> None:
    """List the named pipelines, with stages and passes."""
    from fx_importer.cli.commands.pipelines import list_pipelines

    list_pipelines(None if output_type is None else OutputType.get(output_type), json)


@environment.command()
@takes_options
def pipeline(
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="A .pt2 file or package.module:callable, as `import` takes it."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="The engine. Default: the one that runs the output type.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Lower the model, run it once, and print the seconds of stages and passes.")
    ] = False,
    options: Options = Options(output_type=OutputType.LINALG_ON_TENSORS),  # noqa: B008 - it is frozen
    json: Json = None,
    trust: Trust = False,
) -> None:
    """List the stages and passes of a compilation in order.

    They start with torch.export and end with the compiler of an engine.
    """
    from fx_importer.cli.commands.pipeline import show_pipeline

    show_pipeline(model, options, engine, run, trust, json)


@environment.command()
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
    """List the operators that are decomposed or kept.

    Each has a reason. For a model, the operators before and after are counted.
    """
    from fx_importer.cli.commands.decompositions import show_decompositions

    chosen = DecompositionOptions(keep=tuple(keep or ()))
    options = Options(OutputType.get(output_type), ExportOptions(strict=strict), chosen)
    show_decompositions(model, options, json, trust)


@environment.command()
def doctor(
    json: Json = None,
) -> None:
    """Check the installation.

    The exit code is 1 if models cannot be lowered.
    """
    from fx_importer.cli.commands.doctor import show_checkup

    if not show_checkup(json):
        raise typer.Exit(1)


@environment.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all entries.")] = False,
    json: Json = None,
) -> None:
    """Show the cache of lowerings (--cache), or clear it."""
    from fx_importer.cli.commands.cache import show_cache

    show_cache(clear, json)


@environment.command()
def reproduce(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The report directory that an error message names.")],
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the functions and programs that the report names as its own.")
    ] = False,
    json: Json = None,
) -> None:
    """Rerun the report of a failure.

    The exit code is 0 if it fails in the same way, and 1 otherwise.
    """
    from fx_importer.cli.commands.reproduce import reproduce_report

    if not reproduce_report(directory, trust, json):
        raise typer.Exit(1)


@environment.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIRECTORY", help="The directory for the modules.")] = Path("out"),
) -> None:
    """Lower a sentence encoder to every output type, and run it.

    Its weights are the trained ones.
    """
    from fx_importer.cli.demo import run_demo

    run_demo(out)


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 is a free one.")] = 0,
    output_type: Annotated[
        str, typer.Option(metavar=OUTPUT_TYPES, help="The output type that is chosen at first.")
    ] = OutputType.LINALG_ON_TENSORS.value,
    time_limit: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Of a compilation.")] = 60,
    memory_limit: Annotated[int, typer.Option(min=2**20, metavar="BYTES", help="Of a compilation, private memory.")] = 4
    * 2**30,
) -> None:
    """Serve a page to edit a model and see its IR.

    The page is the playground; it has the explorer, which follows each edit.
    """
    from fx_importer.cli.commands.serve import serve_playground

    serve_playground(port, OutputType.get(output_type), time_limit, memory_limit)

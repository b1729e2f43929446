"""The commands on modules in files, and their arguments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.following import Following
from fx_importer.cli.following_arguments import takes_following
from fx_importer.cli.option_arguments import takes_options
from fx_importer.cli.shared_arguments import Json, Model, Trust
from fx_importer.errors import UsageError
from fx_importer.options import Options
from fx_importer.output_types import OutputType

files = typer.Typer()
"""Commands that `fx_importer.cli.app` adds to its own."""


@files.command()
def link(
    module: Annotated[Path, typer.Argument(metavar="MODULE", help="A module written by `import --weights external`.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="A .mlir file (text) or a .mlirbc file (bytecode).")
    ],
    weights: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A .safetensors or .irpa file, or a checkpoint directory of transformers. May be repeated. "
            "Default: the files that the manifest names, which must be unchanged.",
        ),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The manifest. Default: the one beside the module.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Take weights of files that the manifest names outside of its directory.")
    ] = False,
    json: Json = None,
) -> None:
    """Link weights into a module saved without them."""
    from fx_importer.cli.commands.link import link_module

    link_module(module, output, weights or None, manifest, trust, json)


@files.command()
def show(
    module: Annotated[Path, typer.Argument(metavar="FILE", help="A .mlir or .mlirbc file.")],
    json: Json = None,
) -> None:
    """Show functions, operations and weights of a saved module."""
    from fx_importer.cli.commands.show import show_module

    show_module(module, json)


@files.command()
def compile(
    module: Annotated[Path, typer.Argument(metavar="FILE", help="A .mlir or .mlirbc file.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="A .vmfb file, or a .h of --kind c.")],
    target: Annotated[
        str,
        typer.Option(metavar="TARGET", help="cpu of this machine, x86-64-v3, aarch64, cortex-m4, cuda:sm_90, ..."),
    ] = "cpu",
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="vmfb; static, with an object file of kernels; or c, a C module with it."),
    ] = None,
    kernels: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write PTX, SPIR-V or assembly of the kernels.")
    ] = None,
    json: Json = None,
) -> None:
    """Compile a saved module for IREE, on a CPU or a GPU."""
    from fx_importer.cli.commands.compile import compile_module

    compile_module(module, target, output, kernels, kind, json)


@files.command()
def kernels(
    module: Annotated[Path, typer.Argument(metavar="FILE", help="A .mlir or .mlirbc file.")],
    target: Annotated[str, typer.Option(metavar="TARGET", help="A GPU: cuda:sm_90, rocm:gfx942, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write them.")],
    json: Json = None,
) -> None:
    """Compile the Triton kernels that a saved module calls."""
    from fx_importer.cli.commands.kernels import compile_kernels_of

    compile_kernels_of(module, target, output, json)


@files.command()
def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="A .mlir or .mlirbc file.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    json: Json = None,
) -> None:
    """Compare two saved modules.

    Signatures, operations and constants are compared; the exit code is 1 if they differ.
    """
    from fx_importer.cli.commands.diff import diff_modules

    if not diff_modules(first, second, json):
        raise typer.Exit(1)


@partial(takes_following, report=False)
@takes_options
def view(
    model: Model,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A .html file (the page) or a .json file (its data). With --open, the default is a temporary file.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    options: Options = Options(output_type=OutputType.LINALG_ON_TENSORS),  # noqa: B008 - it is frozen
    following: Following = Following(),  # noqa: B008
    trust: Trust = False,
) -> None:
    """Write a page that links the model's source with its IR.

    The page, the explorer, has the IR after each stage. The exit code is 1 if the model cannot be lowered; the page
    then shows why.
    """
    from fx_importer.cli.commands.view import view_model

    if not view_model(model, options, output, following, trust, show):
        raise typer.Exit(1)


def complete_pipeline(incomplete: str) -> list[tuple[str, str]]:
    """Return the passes and pipelines that the last word of ``incomplete`` may become, with descriptions."""
    from fx_importer.cli.opt.run_passes import listed_passes

    before, comma, word = incomplete.rpartition(",")
    return [
        (f"{before}{comma}{name}", description)
        for rows in listed_passes().values()
        for name, description in rows.items()
        if name.startswith(word)
    ]


@partial(takes_following, report=False)
def opt(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A module: text or bytecode; - reads standard input.")
    ] = "-",
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline",
            "-p",
            metavar="PASSES",
            help="Passes, separated by commas: of the wheel or of this package by name, pipelines of `fx-importer "
            "pipelines`, package.module:function, or MLIR's builtin.module(...). May be repeated.",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A .mlir file (text), a .mlirbc file (bytecode), or - (text)."
        ),
    ] = "-",
    list_passes: Annotated[bool, typer.Option("--list", help="List the passes and pipelines, and exit.")] = False,
    split_input: Annotated[
        bool, typer.Option("--split-input", help="Run on the parts between lines `// -----`, one after the other.")
    ] = False,
    allow_unregistered: Annotated[
        bool, typer.Option("--allow-unregistered", help="Accept operations of dialects that MLIR does not know.")
    ] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="With --list: also write it as JSON.")] = None,
    following: Following = Following(),  # noqa: B008 - it is frozen
) -> None:
    """Run passes on a module in a file, as mlir-opt does."""
    from fx_importer.cli.opt.run_passes import optimize, show_passes

    if json is not None and not list_passes:
        raise UsageError("--json is the file of --list: pass --list too")
    if list_passes:
        show_passes(json)
    elif not optimize(file, pipeline or [], output, split_input, allow_unregistered, following):
        raise typer.Exit(1)

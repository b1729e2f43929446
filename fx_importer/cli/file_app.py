"""The commands on modules in files, and their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
) -> None:
    """Link weights into a module that refers to them by name."""
    from fx_importer.cli.commands.link import link_module

    link_module(module, output, weights or None, manifest, trust)


@files.command()
def show(
    module: Annotated[Path, typer.Argument(metavar="FILE", help="A .mlir or .mlirbc file.")],
) -> None:
    """Show the functions, operations, weights and contract of a saved module."""
    from fx_importer.cli.commands.show import show_module

    show_module(module)


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
) -> None:
    """Compile a saved module for IREE's runtime, on a CPU or a GPU."""
    from fx_importer.cli.commands.compile import compile_module

    compile_module(module, target, output, kernels, kind)


@files.command()
def kernels(
    module: Annotated[Path, typer.Argument(metavar="FILE", help="A .mlir or .mlirbc file.")],
    target: Annotated[str, typer.Option(metavar="TARGET", help="A GPU: cuda:sm_90, rocm:gfx942, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write them.")],
) -> None:
    """Compile the Triton kernels that a saved module calls to machine code."""
    from fx_importer.cli.commands.kernels import compile_kernels_of

    compile_kernels_of(module, target, output)


@files.command()
def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="A .mlir or .mlirbc file.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
) -> None:
    """Compare signatures, operations and constants of two saved modules; the exit code is 1 if they differ."""
    from fx_importer.cli.commands.diff import diff_modules

    if not diff_modules(first, second):
        raise typer.Exit(1)

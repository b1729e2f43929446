"""The arguments of ``fx-importer build``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.following import Following
from fx_importer.cli.following_arguments import takes_following
from fx_importer.cli.option_arguments import takes_options
from fx_importer.cli.shared_arguments import Blas, Json, Model, Trust
from fx_importer.options import Options
from fx_importer.output_types import OutputType


@takes_following
@takes_options
def build(
    model: Model,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="NAME",
            help="Path of the files, without suffix; its last part prefixes names in C.",
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="x86-64-v3, aarch64, riscv64, cortex-m4, wasm32, host, or TRIPLE:CPU. Default: the baseline of this "
            "machine's architecture.",
        ),
    ] = None,
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="shared, static, object, executable or c (source).")
    ] = "shared",
    native_weights: Annotated[
        str,
        typer.Option(
            "--weights-in",
            metavar="PLACE",
            help="embedded in the library; a file that the program maps; or a pointer that it passes.",
        ),
    ] = "embedded",
    threads: Annotated[
        str | None, typer.Option(metavar="openmp", help="Run loops on OpenMP threads. Default: on one thread.")
    ] = None,
    blas: Blas = None,
    cmsis_nn: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Call CMSIS-NN, whose source is in this folder, for layers of int8. Default: none.",
        ),
    ] = None,
    json: Json = None,
    options: Options = Options(output_type=OutputType.LINALG_ON_TENSORS),  # noqa: B008 - it is frozen
    following: Following = Following(),  # noqa: B008
    trust: Trust = False,
) -> None:
    """Build a model as native code with a C header.

    The library needs no runtime and no Python, and allocates nothing in a call.
    """
    from fx_importer.cli.native.build import build_model

    build_model(
        model,
        output,
        options,
        target=target,
        kind=kind,
        weights=native_weights,
        threads=threads,
        blas=blas,
        following=following,
        trust=trust,
        json=json,
        cmsis_nn=cmsis_nn,
    )

"""Arguments of several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fx_importer.output_types import OutputType

OUTPUT_TYPES = "|".join(member.value for member in OutputType)

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A .pt2 file that torch.export.save wrote, or package.module:callable. The callable takes nothing and "
        "returns (model, args) or (model, args, kwargs); the current directory is importable.",
    ),
]

Json = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the result as JSON; - is standard output.")]

Blas = Annotated[
    str | None,
    typer.Option(metavar="LIBRARY", help="Call this CBLAS for large matmuls: openblas, or a path. Default: none."),
]

Device = Annotated[
    str,
    typer.Option(metavar="DEVICE", help="Where it runs: cpu, or cuda, cuda:1 or rocm, on an engine that has it."),
]

Trust = Annotated[
    bool, typer.Option("--trust", help="Load a .pt2 file although it may run code, as one with pickled objects does.")
]

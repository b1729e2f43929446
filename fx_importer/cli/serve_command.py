"""The arguments of ``fx-importer serve``."""

from __future__ import annotations

from typing import Annotated

import typer

from fx_importer.cli.model_arguments import OUTPUT_TYPES
from fx_importer.output_types import OutputType


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

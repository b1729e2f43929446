"""``fx-importer quantize``."""

from __future__ import annotations

from pathlib import Path

import torch

from fx_importer.api.accuracy import Accuracy, accuracy, exported_quantized
from fx_importer.api.quantize import quantize
from fx_importer.cli.commands.import_model import export_model
from fx_importer.cli.commands.matrix import read_inputs
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.errors import UsageError
from fx_importer.mlir.output_files import atomic_file, check_writable, file_for_torch
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.quantization.qdq import is_quantized
from fx_importer.verification import Inputs


def quantize_model(
    model: str,
    output: Path | None,
    inputs: Path | None,
    integer_io: bool,
    keep_float: tuple[str, ...],
    activations: str,
    tries: int,
    trust: bool = False,
    json: Path | None = None,
) -> None:
    """Quantize the model that ``model`` names, with the input sets of the file ``inputs`` or its example inputs.

    Prints the accuracy relative to the float model, and writes it to ``json`` and the program to ``output``.

    Raises:
        UsageError: for a quantized model, and as `quantize` and `accuracy` raise.
        NotInstalledError: without torchao.
    """
    if output is not None:
        check_writable(output, (".pt2",))
    with json_output(json) as write:
        quantized, calls, result = _quantized(model, inputs, integer_io, keep_float, activations, tries, trust)
        echo(result)
        if output is not None:
            with atomic_file(output) as temporary, file_for_torch(temporary) as file:
                torch.export.save(exported_quantized(quantized, (calls[0].args, calls[0].kwargs)), file)
        write(document(result))


def _quantized(
    model: str,
    inputs: Path | None,
    integer_io: bool,
    keep_float: tuple[str, ...],
    activations: str,
    tries: int,
    trust: bool,
) -> tuple[torch.fx.GraphModule, list[Inputs], Accuracy]:
    """Return the quantized model, the input sets, and the accuracy. Raises as `quantize_model` does."""
    with reporting_progress(True):
        program = export_model(model, Options(OutputType.TOSA), trust)
        if is_quantized(program.graph):
            raise UsageError("the model is quantized: lower it with --quantized integer")
        args, kwargs = program.example_inputs or ((), {})
        calls = read_inputs(inputs) if inputs else [Inputs(args, kwargs)]
        quantized = quantize(program, calls, integer_io=integer_io, keep_float=keep_float, activations=activations)
        return quantized, calls, accuracy(program, quantized, calls, tries=tries)

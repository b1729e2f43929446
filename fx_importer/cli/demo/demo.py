"""The steps of the demo."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import torch

from fx_importer.api.lower import lower
from fx_importer.cli.demo import demo_tables
from fx_importer.cli.demo.sentence_encoder import SENTENCES, load_encoder, similarities
from fx_importer.cli.escaped_console import escaped_console
from fx_importer.cli.model_loading import silence_torch
from fx_importer.errors import FxImporterError, UsageError
from fx_importer.output_types import OutputType
from fx_importer.results.lowered import Lowered

TOLERANCE = 1e-5
"""Tolerance of a cosine similarity against eager PyTorch. Reordered float32 sums change it by about 1e-7."""

PIPED_WIDTH = 100

NEXT_STEPS = """
Next:
  1. Compare the TOSA module with eager PyTorch on every installed engine:
     {command} verify fx_importer.cli.demo:load_encoder --output-type tosa
  2. Lower your own model. build() in mine.py returns the model and its example inputs:
     {command} import mine:build --output-type tosa -o mine.mlir
  3. Read docs/first-ten-minutes.md: unsupported operators, and what to do about them.
"""


def run_demo(out: Path) -> None:
    """Lower the encoder to every output type, run linalg-on-tensors on sentences, and name what to try next.

    ``out`` gets the modules, and the explorer's page of linalg-on-tensors.

    Raises:
        UsageError: if the extra ``demo`` is not installed, or ``out`` cannot be a directory.
        FxImporterError: if a similarity differs by more than ``TOLERANCE`` from eager PyTorch's.
    """
    console = escaped_console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to '{out}': {error.strerror}") from None
    silence_torch()
    started = time.perf_counter()
    encoder, inputs = load_encoder()
    parameters = sum(parameter.numel() for parameter in encoder.parameters())
    console.print(
        f"\n[bold]all-MiniLM-L6-v2[/], a sentence encoder with its trained weights ({parameters / 1e6:.1f} million), "
        f"on {len(SENTENCES)} sentences.\n"
    )

    lowered: dict[OutputType, Lowered] = {}
    files: dict[OutputType, Path] = {}
    for output_type in OutputType:
        with console.status(f"to {output_type.value}"):
            lowered[output_type] = lower(encoder, *inputs, output_type=output_type)
            files[output_type] = out / f"minilm.{output_type.value}.mlirbc"
            lowered[output_type].save(files[output_type])
    console.print(demo_tables.modules(lowered, files))
    console.print(f"Written as bytecode: {out}/minilm.<output type>.mlirbc\n", markup=False)
    with console.status("running"), torch.no_grad():
        embeddings = lowered[OutputType.LINALG_ON_TENSORS].run(*inputs)
        ours, eager = similarities(embeddings), similarities(encoder(*inputs))
    console.print(demo_tables.similarities(SENTENCES, ours, eager))

    largest = max(abs(a - b) for a, b in zip(ours, eager, strict=True))
    verdict = f"The largest difference from eager PyTorch is {largest:.1e}; {TOLERANCE:.0e} is allowed."
    if not largest <= TOLERANCE:  # true for NaN too
        raise FxImporterError(verdict)
    console.print(f"[bold]{verdict}[/]\n")
    page = out / "minilm.html"
    with console.status("the explorer's page"):
        lowered[OutputType.LINALG_ON_TENSORS].report(str(page))
    console.print(f"Open [bold]{page}[/] in a browser: each line of the model, linked with its operations.")
    console.print(NEXT_STEPS.format(command=_command()), markup=False, soft_wrap=True)
    console.print(f"{time.perf_counter() - started:.0f} s in all.")


def _command() -> str:
    """Return the command as typed in this shell: its name if it is on the path, its file otherwise."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return "python -m fx_importer"
    on_path = shutil.which(program.name)
    return program.name if on_path and Path(on_path).samefile(program) else str(program)

"""``fx-importer llm import``, ``fx-importer llm run`` and ``fx-importer llm score``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fx_importer.cli.following import Following
from fx_importer.cli.terminal import echo
from fx_importer.errors import NotInstalledError
from fx_importer.mlir.output_files import check_directory
from fx_importer.output_types import OutputType
from fx_importer.process.optional_packages import is_installed


def import_language_model(
    folder: Path, output: Path, *, output_type: OutputType, following: Following, **options: Any
) -> None:
    """Write the module of the model in ``folder`` to ``output``; with the options of `import_model`, which may fail."""
    check_directory(output)
    llm = quiet_llm()
    start = time.perf_counter()
    with following.run(str(folder), output_type.value):
        llm.import_model(folder, output, output_type=output_type, **options)
    size = sum(file.stat().st_size for file in output.iterdir())
    echo(f"{output}: {output_type.value}, {size:,} bytes, {time.perf_counter() - start:.1f} s")


def run_language_model(
    folder: Path,
    prompts: Sequence[str],
    engine: str,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    stop: Sequence[str],
    lora: Path | None = None,
) -> None:
    """Print what the model writes after each prompt: of one as it comes, of several in the end."""
    model = quiet_llm().load(folder, engine=engine, lora=lora)
    streams = len(prompts) == 1

    def show(number: int, text: str) -> None:
        if streams:
            echo(text, end="", flush=True)

    generations = model.generate(
        prompts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=stop,
        on_text=show,
    )
    if streams:
        echo()
    else:
        for prompt, generation in zip(prompts, generations, strict=True):
            echo(f"{prompt}{generation.text}")
    count = sum(len(generation.tokens) for generation in generations)
    rate = f", {len(prompts) * model.steps / model.seconds_of_decode:.1f} tokens per second" if model.steps else ""
    echo(f"{count} tokens on {engine}: prompt {model.seconds_of_prefill:.2f} s{rate}", file=sys.stderr)


def score_texts(folder: Path, texts: Sequence[str], engine: str, beside: Path | None, lora: Path | None = None) -> None:
    """Print the perplexity of each text, and its perplexity by the import in ``beside``."""
    llm = quiet_llm()
    scores = llm.load(folder, engine=engine, lora=lora).score(texts)
    others = llm.load(beside, engine=engine).score(texts) if beside is not None else []
    for number, score in enumerate(scores):
        other = f"; {others[number].perplexity:.4f} in {beside}" if others else ""
        echo(f"perplexity {score.perplexity:.4f}, {len(score.tokens)} tokens{other}")


def quiet_llm():
    """Return `fx_importer.llm`, without transformers' progress bars and advice."""
    if not is_installed("transformers"):
        raise NotInstalledError("fx-importer llm", "transformers", "llm")
    from transformers.utils import logging

    from fx_importer import llm

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return llm

"""``fx-importer llm import``, ``fx-importer llm run`` and ``fx-importer llm score``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fx_importer.cli.following import Following
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.errors import NotInstalledError, UsageError
from fx_importer.mlir.output_files import check_directory
from fx_importer.output_types import OutputType
from fx_importer.process.optional_packages import is_installed


def import_language_model(
    folder: Path,
    output: Path,
    *,
    output_type: OutputType,
    following: Following,
    json: Path | None = None,
    **options: Any,
) -> None:
    """Write the module of the model in ``folder`` to ``output``; with the options of `import_model`, which may fail."""
    check_directory(output)
    with json_output(json) as write:
        llm = quiet_llm()
        start = time.perf_counter()
        with following.run(str(folder), output_type.value):
            llm.import_model(folder, output, output_type=output_type, **options)
        size, seconds = sum(file.stat().st_size for file in output.iterdir()), time.perf_counter() - start
        echo(f"{output}: {output_type.value}, {size:,} bytes, {seconds:.1f} s")
        write(document({"output": output, "output_type": output_type, "bytes": size, "seconds": seconds}))


def build_language_model(
    folder: Path, output: Path, target: str | None, kind: str, threads: str | None, blas: str | None
) -> None:
    """Build the model in ``folder`` as a native library in ``output``; list its files and its weight files."""
    built = quiet_llm().build(folder, output, target=target, kind=kind, threads=threads, blas=blas)
    for path in built.files:
        echo(f"{path}: {path.stat().st_size:,} bytes")
    files = ", ".join(file.name for file in built.library.files)
    echo(f"{built.library.target.name}, state {built.library.state_bytes:,} bytes, weights in {files}")


def run_language_model(
    folder: Path,
    prompts: Sequence[str],
    features: Sequence[Path],
    start: str | None,
    engine: str | None,
    lora: Path | None,
    json: Path | None = None,
    device: str = "cpu",
    **options: Any,
) -> None:
    """Print what the model writes after each prompt, or for each source of ``features``, with `generate`'s options.

    The text of one is printed as it comes, the texts of several in the end. With ``start``, the decoder of an
    encoder-decoder starts with it. ``json`` gets the texts, tokens and times.
    """
    inputs, labels = _inputs(prompts, features)
    with json_output(json) as write:
        write(document(_run(folder, inputs, labels, bool(features), start, engine, device, lora, options)))


def _run(
    folder: Path,
    inputs: list[Any],
    labels: list[str],
    features: bool,
    start: str | None,
    engine: str | None,
    device: str,
    lora: Path | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Generate and print the texts, and return them as data."""
    llm = quiet_llm()
    model = llm.load(folder, engine=engine, lora=lora, device=device)
    engine = llm.engine_for(device, engine)
    if isinstance(model, llm.SourceModel):
        options["start"] = start
        labels = [f"{label}: " for label in labels]
    elif features or start is not None:
        raise UsageError(f"--features or --start for '{folder}', which has no encoder: pass --prompt")
    streams = len(inputs) == 1

    def show(number: int, text: str) -> None:
        if streams:
            echo(text, end="", flush=True)

    generations = model.generate(inputs, **options, on_text=show)
    if streams:
        echo()
    else:
        for label, generation in zip(labels, generations, strict=True):
            echo(f"{label}{generation.text}")
    count = sum(len(generation.tokens) for generation in generations)
    rate = f", {len(inputs) * model.steps / model.seconds_of_decode:.1f} tokens per second" if model.steps else ""
    where = engine if device == "cpu" else f"{engine}, {device}"
    echo(f"{count} tokens on {where}: prompt {model.seconds_of_prefill:.2f} s{rate}", file=sys.stderr)
    texts = [{"text": generation.text, "tokens": generation.tokens} for generation in generations]
    times = {"seconds_of_prefill": model.seconds_of_prefill, "seconds_of_decode": model.seconds_of_decode}
    return {"engine": engine, "texts": texts, "steps": model.steps, **times}


def _inputs(prompts: Sequence[str], features: Sequence[Path]) -> tuple[list[Any], list[str]]:
    """Return what the model generates for, and labels of them. Raises `UsageError` for none, both, or no .npy file."""
    if bool(prompts) == bool(features):
        raise UsageError("pass --prompt, or --features for an encoder of features, and not both")
    if prompts:
        return list(prompts), list(prompts)
    import numpy as np
    import torch

    arrays: list[Any] = []
    for file in features:
        try:
            arrays.append(torch.from_numpy(np.load(file, allow_pickle=False)))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"'{file}' is not an array of floats that numpy.save wrote: {error}") from None
    return arrays, [str(file) for file in features]


def score_texts(
    folder: Path,
    texts: Sequence[str],
    engine: str | None,
    beside: Path | None,
    sources: Sequence[str] | None,
    lora: Path | None = None,
    json: Path | None = None,
    device: str = "cpu",
) -> None:
    """Print the perplexity of each text, and its perplexity by the import in ``beside``; ``json`` gets both as data."""
    llm = quiet_llm()

    def scored(path: Path, adapter: Path | None) -> Any:
        model = llm.load(path, engine=engine, lora=adapter, device=device)
        if isinstance(model, llm.SourceModel):
            return model.score(texts, sources=sources)
        if sources:
            raise UsageError(f"--source for '{path}', which has no encoder: leave it out")
        return model.score(texts)

    with json_output(json) as write:
        scores = scored(folder, lora)
        others = scored(beside, None) if beside is not None else []
        for number, score in enumerate(scores):
            other = f"; {others[number].perplexity:.4f} in {beside}" if others else ""
            echo(f"perplexity {score.perplexity:.4f}, {len(score.tokens)} tokens{other}")
        rows = [{"perplexity": score.perplexity, "tokens": score.tokens} for score in scores]
        write(document({"scores": rows, "others": [other.perplexity for other in others]}))


def quiet_llm():
    """Return `fx_importer.llm`, without transformers' progress bars and advice."""
    if not is_installed("transformers"):
        raise NotInstalledError("fx-importer llm", "transformers", "llm")
    from transformers.utils import logging

    from fx_importer import llm

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return llm

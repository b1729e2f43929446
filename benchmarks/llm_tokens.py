"""Tokens of imported language models beside ``model.generate``; a section of docs/measurements/llm.md.

    python -m benchmarks.llm_tokens --json tokens.json              # all of them; goes on where it stopped
    python -m benchmarks.llm_tokens --kinds gpt2 gemma2 --engines jit
    python -m benchmarks.llm_tokens --json tokens.json --again      # once more what did not pass
    python -m benchmarks.llm_tokens --json tokens.json --write      # renew the page from the file

Each architecture has a tiny random configuration, with a sliding window of 8 positions where it has one, and a seed
with which its tokens vary. A cell is an architecture, an engine and a batch of 1 or 3. It holds four runs of `STEPS`
tokens: greedy and drawn, of short and of long prompts. In a batch of 3, prompts differ in length. Greedy tokens are
compared with those that `generate` adds to each prompt alone, and drawn tokens with those that it draws with the same
noise for the batch.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.rows import DOCS, Row, add_row, parser_of, read_rows, renew, write_rows
from fx_importer import FxImporterError
from fx_importer.llm import LanguageModel, Sampling, import_model, load
from tests.llm.tiny_models import CONFIGS, END, save_tiny_model

PAGE = DOCS / "measurements" / "llm.md"
ENGINES = {"jit": "linalg-on-tensors", "iree": "linalg-on-tensors", "xla": "stablehlo"}
BATCHES = (1, 3)
STEPS, CONTEXT, DISTINCT = 64, 96, 8
PROMPTS = {
    "short": [[7, 99, 31, 250, 4], [1, 2, 3], [12, 5]],
    "long": [
        [12, 5, 77, 140, 201, 33, 90, 2, 61, 18, 40, 8, 250, 99, 3, 71, 55, 130, 222, 10, 11, 9, 64, 200],
        [5, 6, 7, 8, 9, 10, 200, 100, 50, 25, 12],
        [90, 80, 70, 60, 50, 40, 30, 20, 10, 1, 2, 3, 4, 5, 6, 7, 8],
    ],
}
DRAWN, SEED = Sampling(temperature=0.9, top_k=40, top_p=0.95), 11
Tokens = list[list[int]]


def generated(model: Any, prompts: Tokens, sampling: Sampling | None) -> Tokens:
    """Return the `STEPS` tokens that ``generate`` adds to each of ``prompts``, padded on the left."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(each)) + each for each in prompts])
    mask = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in prompts])
    drawn: dict[str, Any] = {"do_sample": False}
    if sampling is not None:
        drawn = {"do_sample": True, "temperature": sampling.temperature, "top_k": sampling.top_k}
        drawn["top_p"] = sampling.top_p
    torch.manual_seed(SEED)
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=STEPS, eos_token_id=None, pad_token_id=END, **drawn
        )
    return out[:, longest:].tolist()


def varied_model(folder: Path, kind: str) -> tuple[Any, dict[str, Tokens]]:
    """Write a model to ``folder``; return it, and its greedy tokens after `PROMPTS`, `DISTINCT` or more of each."""
    for seed in range(16):
        model = save_tiny_model(folder, kind, seed)
        tokens = {name: [generated(model, [each], None)[0] for each in prompts] for name, prompts in PROMPTS.items()}
        if all(len(set(row)) >= DISTINCT for rows in tokens.values() for row in rows):
            return model, tokens
    raise SystemExit(f"{kind}: tokens repeat with each seed")


def first_difference(found: Tokens, wanted: Tokens) -> str:
    """Return where tokens differ; nothing if they do not."""
    for row, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one != other:
            step = next((each for each, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), "end")
            return f"sequence {row} from step {step}"
    return ""


def compared(imported: LanguageModel, model: Any, greedy: dict[str, Tokens], batch: int) -> dict[str, str]:
    """Return how the tokens of each run differ; nothing for those that are equal."""
    differences: dict[str, str] = {}
    for (name, prompts), sampling in itertools.product(PROMPTS.items(), (None, DRAWN)):
        rows = prompts[:batch]
        wanted = greedy[name][:batch] if sampling is None else generated(model, rows, sampling)
        found = [list(each) for each in zip(*imported.tokens(rows, STEPS, sampling, SEED), strict=True)]
        if text := first_difference(found, wanted):
            differences[f"{'greedy' if sampling is None else 'drawn'}, {name}"] = text
    return differences


def measure(kind: str, cells: Sequence[tuple[str, int]]) -> Iterator[Row]:
    """Yield a row for each of ``cells``, an engine and batch: status ``equal``, ``differs`` or ``error``, and why."""
    with tempfile.TemporaryDirectory(prefix="fx-importer-tokens-") as scratch:
        folder = Path(scratch)
        model, greedy = varied_model(folder / "model", kind)
        for engine, batch in cells:
            start, out = time.process_time(), folder / f"{ENGINES[engine]}-{batch}"
            try:
                if not out.exists():
                    import_model(folder / "model", out, batch=batch, context=CONTEXT, output_type=ENGINES[engine])
                differences = compared(load(out, engine=engine), model, greedy, batch)
                status = "differs" if differences else "equal"
                reason = "; ".join(f"{run}: {text}" for run, text in differences.items())
            except FxImporterError as error:
                status, reason = "error", f"{type(error).__name__}: {error}".splitlines()[0]
            seconds = round(time.process_time() - start, 1)
            row: Row = {"kind": kind, "engine": engine, "batch": batch, "status": status, "reason": reason}
            yield row | {"cpu_seconds": seconds}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    cells = {(row["kind"], row["engine"], row["batch"]): row["status"] for row in rows}
    columns = list(itertools.product(ENGINES, BATCHES))
    titles = " | ".join(f"{engine}, batch {batch}" for engine, batch in columns)
    lines = [f"| architecture | {titles} |", "|---|" + "---|" * len(columns)]
    for kind in CONFIGS:
        texts = [cells.get((kind, *each), "not run") for each in columns]
        lines.append(f"| {kind} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what the file does not hold, or renew the page."""
    parser = parser_of(__doc__, PAGE)
    parser.add_argument("--kinds", nargs="+", choices=list(CONFIGS), default=list(CONFIGS))
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--again", action="store_true", help="once more what did not pass")
    arguments: argparse.Namespace = parser.parse_args()
    rows = read_rows(arguments.json)
    if arguments.write:
        renew(PAGE, "llm-tokens", table(rows))
        return
    if arguments.again:
        rows = [row for row in rows if row["status"] == "equal"]
        write_rows(arguments.json, rows)
    torch.set_num_threads(1)
    done = {(row["kind"], row["engine"], row["batch"]) for row in rows}
    for kind in arguments.kinds:
        cells = [each for each in itertools.product(arguments.engines, BATCHES) if (kind, *each) not in done]
        for row in measure(kind, cells) if cells else ():
            add_row(arguments.json, row)
            print(row, flush=True)


if __name__ == "__main__":
    main()

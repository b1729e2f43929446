"""Time of a decode step against the size of the cache: ``python -m benchmarks.llm_decode``.

A Llama of four layers, by default of hidden size 256, random weights, one thread. Each figure is the CPU time of a
step in milliseconds, of the fastest step. Engines take turns of `TURN` steps: a busy machine slows all of them, and
each finds its weights in the cache of the processor. All results are compared with eager's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from fx_importer import lower
from fx_importer.benchmarking.engine_process import use_threads
from fx_importer.llm.checkpoints.packed_weights import PACKINGS
from fx_importer.llm.checkpoints.quantize import quantize
from fx_importer.llm.decoder import Decoder

TURNS, TURN = 4, 8
HALF = ("bfloat16", "float16")
ENGINES = {"jit": "linalg-on-tensors", "iree": "linalg-on-tensors", "xla": "stablehlo"}
Step = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def llama(hidden: int) -> PreTrainedModel:
    """Return the model."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=8192,
    )
    return AutoModelForCausalLM.from_config(config).eval()


def decoder(context: int, hidden: int, weights: str, engine: str = "jit") -> Decoder:
    """Return the model with a cache of ``context`` positions, written for ``engine``."""
    model = llama(hidden)
    if weights in PACKINGS:
        quantize(model, weights, engine=engine)
    if weights in HALF:
        model = model.to(getattr(torch, weights))
    return Decoder(model, 1, context, fused=engine != "xla").eval()


def steps_of(context: int, engines: list[str], hidden: int, weights: str) -> dict[str, Step]:
    """Return the step of each engine, and eager's."""
    example = (torch.ones(1, 1, dtype=torch.int64), torch.tensor(0), torch.zeros(1, dtype=torch.int64))
    with torch.no_grad():
        steps: dict[str, Step] = {"eager": torch.export.export(decoder(context, hidden, weights), example).module()}
    for engine in engines:
        with torch.no_grad():
            program = torch.export.export(decoder(context, hidden, weights, engine), example)
        lowered = lower(program, output_type=ENGINES[engine], mutation="functional")
        steps[engine] = lowered.caller(backend=engine)
    return steps


def measure(context: int, engines: list[str], hidden: int, weights: str) -> dict[str, float]:
    """Return the milliseconds of a step, by engine."""
    steps = steps_of(context, engines, hidden, weights)
    best = dict.fromkeys(steps, float("inf"))
    padding = torch.zeros(1, dtype=torch.int64)
    near = 3e-2 if weights in HALF else 1e-4
    for turn in range(TURNS):
        results: dict[str, list[torch.Tensor]] = {name: [] for name in steps}
        for name, step in steps.items():
            for position in range(turn * TURN, (turn + 1) * TURN):
                start = time.process_time()
                with torch.no_grad():
                    results[name].append(step(torch.tensor([[position]]), torch.tensor(position), padding))
                best[name] = min(best[name], 1e3 * (time.process_time() - start))
        for name, found in results.items():
            torch.testing.assert_close(found, results["eager"], atol=near, rtol=near, msg=f"{name} in turn {turn}")
    return best


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="jit,iree,xla")
    parser.add_argument("--contexts", default="64,1024,4096")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument(
        "--weights", default="float32", help=f"comma-separated: float32, {', '.join((*HALF, *PACKINGS))}"
    )
    arguments = parser.parse_args()
    use_threads(1)  # of XLA too, which takes as many as there are processors
    engines = arguments.engines.split(",")
    print("| weights | cache |", " | ".join(["eager", *engines]), "|\n|" + "---|" * (len(engines) + 3))
    for weights in arguments.weights.split(","):
        for context in map(int, arguments.contexts.split(",")):
            found = measure(context, engines, arguments.hidden, weights)
            figures = " | ".join(f"{each:.2f}" for each in found.values())
            print(f"| {weights} | {context} | {figures} |", flush=True)


if __name__ == "__main__":
    main()

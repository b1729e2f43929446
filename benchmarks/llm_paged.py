"""Time of a decode step of a paged cache against its capacity, at the same fill: ``python -m benchmarks.llm_paged``.

The Llama of `benchmarks.llm_decode`, one thread. Each figure is the CPU time of a step in milliseconds, of the fastest
step; capacities take turns of `TURN` steps. Logits at one position are compared between capacities.
"""

from __future__ import annotations

import argparse
import time

import torch

from benchmarks.llm_decode import ENGINES, TURN, TURNS, Step, llama
from fx_importer import lower
from fx_importer.benchmarking.engine_process import use_threads
from fx_importer.llm.decoder import PagedDecoder

PAGE = 16


def step_of(engine: str, capacity: int, hidden: int, batch: int, number: int) -> Step:
    """Return a call on ``engine`` of ``number`` tokens of each sequence, with a pool of ``capacity`` rows of each."""
    stablehlo = ENGINES[engine] == "stablehlo"
    decoder = PagedDecoder(llama(hidden), 8192, 1 + batch * capacity // PAGE, PAGE, fused=not stablehlo).eval()
    tokens, table = torch.ones(batch, number, dtype=torch.int64), torch.ones(batch, number + 2, dtype=torch.int64)
    pages = torch.export.Dim("pages", min=1, max=8192 // PAGE)
    with torch.no_grad():
        program = torch.export.export(
            decoder, (tokens, table, table[:, 0].clone()), dynamic_shapes=(None, {1: pages}, None)
        )
    return lower(program, output_type=ENGINES[engine], mutation="functional").caller(backend=engine)


def measure(engine: str, capacities: list[int], fill: int, hidden: int, batch: int, number: int) -> dict[int, float]:
    """Return the milliseconds of a step with ``fill`` positions in the cache, by capacity."""
    steps = {capacity: step_of(engine, capacity, hidden, batch, number) for capacity in capacities}
    best = dict.fromkeys(capacities, float("inf"))
    table = torch.arange(1, 1 + batch * fill // PAGE).reshape(batch, -1)
    results: dict[int, torch.Tensor] = {}
    for _ in range(TURNS):
        for capacity, step in steps.items():
            for position in range(fill - TURN - number + 1, fill - number + 1):
                tokens, lengths = torch.full((batch, number), position), torch.full((batch,), position)
                start = time.process_time()
                results[capacity] = step(tokens, table, lengths)
                best[capacity] = min(best[capacity], 1e3 * (time.process_time() - start))
        torch.testing.assert_close(list(results.values()), [results[capacities[0]]] * len(capacities))
    return best


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="jit,iree,xla")
    parser.add_argument("--capacities", default="64,8192")
    parser.add_argument("--fills", default="64")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=1, help="of each sequence")
    arguments = parser.parse_args()
    use_threads(1)  # of XLA too, which takes as many as there are processors
    capacities = [int(each) for each in arguments.capacities.split(",")]
    print("| engine | fill |", " | ".join(map(str, capacities)), "|\n|" + "---|" * (len(capacities) + 2))
    for engine in arguments.engines.split(","):
        for fill in map(int, arguments.fills.split(",")):
            fitting = [each for each in capacities if each >= fill]
            found = measure(engine, fitting, fill, arguments.hidden, arguments.batch, arguments.tokens)
            print(f"| {engine} | {fill} |", " | ".join(f"{each:.2f}" for each in found.values()), "|", flush=True)


if __name__ == "__main__":
    main()

"""Memory of a long prompt: ``python -m benchmarks.llm_long_prompt --engine jit --tokens 8191``.

A Llama of four layers, eight heads and hidden size 256 with random weights, imported with a context of one position
more. Printed are seconds and how much more resident memory than before the prompt took at its peak, and what the
scores of attention of all pairs of positions would take in one layer.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.llm_decode import llama
from examples.tiny_llama import save
from fx_importer import llm


def memory(name: str) -> int:
    """Return the bytes of ``VmRSS``, the resident memory of this process, or of ``VmHWM``, its peak."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(name)]
    return 1024 * int(line.split()[1])


def main() -> None:
    """Print a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="jit")
    parser.add_argument("--cache", default="static")
    parser.add_argument("--tokens", type=int, default=8191)
    arguments = parser.parse_args()
    output_type = "stablehlo" if arguments.engine == "xla" else "linalg-on-tensors"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        save(str(folder / "model"))  # for its tokenizer
        llama(256).save_pretrained(folder / "model")
        context, cache = arguments.tokens + 1, arguments.cache
        out = llm.import_model(folder / "model", folder / "out", context=context, output_type=output_type, cache=cache)
        model = llm.load(out, engine=arguments.engine)
        list(model.tokens([[1] * 300], 2))  # compiles, and takes what any prompt does
        prompt = torch.randint(0, 1024, (arguments.tokens,)).tolist()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, start = memory("VmRSS"), time.perf_counter()
        list(model.tokens([prompt], 1))
        seconds, taken = time.perf_counter() - start, memory("VmHWM") - before
    whole = 8 * arguments.tokens**2 * 4
    print(f"{arguments.engine}, {cache}: {seconds:.1f} s, {taken >> 20} MiB more ({whole >> 20} MiB of scores)")


if __name__ == "__main__":
    main()

"""Prefill of a Llama of a 1B's sizes, random weights in float32, divided among host devices of XLA, beside eager.

``python -m benchmarks.mesh_prefill [--layers 16] [--mesh tp=8]``: takes some 10 GB.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fx_importer import lower

DIMENSIONS = {"q": 0, "k": 0, "v": 0, "o": 1, "gate": 0, "up": 0, "down": 1}
"""By projection, the dimension of its weight that tp divides."""


class Logits(torch.nn.Module):
    def __init__(self, layers: int):
        super().__init__()
        sizes: dict[str, Any] = {"vocab_size": 32768, "hidden_size": 2048, "intermediate_size": 8192}
        heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
        config = LlamaConfig(**sizes, **heads, num_hidden_layers=layers, use_cache=False, tie_word_embeddings=True)
        self.model = LlamaForCausalLM(config).eval().requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens).logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--mesh", default="tp=8")
    options = parser.parse_args()
    devices = math.prod(int(axis.partition("=")[2]) for axis in options.mesh.split(","))
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    plan: dict[str, Any] = {f"*.{name}_proj.weight": {"tp": dim} for name, dim in DIMENSIONS.items()}
    plan |= {"model.lm_head.weight": {"tp": 0}}  # and of the embedding, which is the same

    torch.manual_seed(0)
    model, tokens = Logits(options.layers), torch.randint(0, 32768, (1, 8), generator=torch.manual_seed(1))
    expected = model(tokens)
    start = time.perf_counter()
    lowered = lower(model, tokens, output_type="stablehlo", weights="args", mesh=options.mesh, plan=plan)
    made = time.perf_counter()
    caller = lowered.caller(backend="xla")
    found = caller(tokens)
    first = time.perf_counter()
    caller(tokens)
    end = time.perf_counter()
    print(f"{sum(each.numel() for each in model.parameters()) / 1e9:.2f}e9 weights on {options.mesh}")
    print(f"lowering {made - start:.1f} s, first call {first - made:.1f} s, second {end - first:.2f} s")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")
    print(f"largest difference {float((found - expected).abs().max()):.2g} of logits up to {expected.abs().max():.2f}")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()

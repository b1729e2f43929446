"""Compare the CPU time from an nn.Module to its linalg module with that of torch_mlir.fx.

    python -m benchmarks.module_time                  # all models, two rounds of both sides in turns
    python -m benchmarks.module_time bert_base -n 3

Least CPU seconds of one process and thread. Modules are deleted between the calls.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from testing.zoo import ZOO, OneResult

OUTPUT_TYPE = "linalg-on-tensors"
_LLAMA = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "vocab_size": 1000}


def _llama() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=16, use_cache=False, **_LLAMA)).eval()
    return OneResult(model, "logits", "input_ids"), (torch.zeros(1, 128, dtype=torch.int64),)


def _of_zoo(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    model, args, _ = ZOO[name].build()
    return model, args


MODELS: dict[str, tuple[Callable[[], Any], float]] = {
    "bert_base": (partial(_of_zoo, "bert_base"), 25.0),
    "resnet50": (partial(_of_zoo, "resnet50"), 40.0),
    "vit_b_16": (partial(_of_zoo, "vit_b_16"), 25.0),
    "llama_16_layers": (_llama, 8.0),
}
"""How to build each model, and the ratio that is aimed at."""


def seconds(run: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    before = time.process_time()
    run()
    return time.process_time() - before


def main() -> None:
    """Print a line for each model."""
    import torch_mlir.fx

    import fx_importer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="by default all")
    parser.add_argument("-n", "--rounds", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in options.models or MODELS:
        build, aim = MODELS[name]
        model, args = build()
        for module in model.modules():
            module._non_persistent_buffers_set.clear()  # torch_mlir.fx does not find these
        ours = partial(fx_importer.export_and_import, model, *args, output_type=OUTPUT_TYPE)
        theirs = partial(torch_mlir.fx.export_and_import, model, *args, output_type=OUTPUT_TYPE)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(options.rounds):
            for run, found in zip((ours, theirs), times, strict=True):
                found.append(seconds(run))
            times[0].append(seconds(ours))
        least = [min(found) for found in times]
        ratio = least[1] / least[0]
        print(f"{name}: {least[1]:.2f} / {least[0]:.2f} CPU s = {ratio:.1f}, aim {aim:g}", flush=True)


if __name__ == "__main__":
    main()

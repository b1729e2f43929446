"""The program of each rank of a Llama of a 70B's sizes, on the meta device: CPU seconds and memory of this process.

``python -m benchmarks.mesh_program [--layers 80] [--mesh tp=8]``
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import torch
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

from fx_importer import lower
from fx_importer.distributed import export_on_mesh

ROWS = ("self_attn.o_proj", "mlp.down_proj")
COLUMNS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")


class Logits(torch.nn.Module):
    def __init__(self, layers: int):
        super().__init__()
        sizes: dict[str, Any] = {"vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672}
        heads = {"num_attention_heads": 64, "num_key_value_heads": 8}
        config = LlamaConfig(**sizes, **heads, num_hidden_layers=layers, use_cache=False)
        self.model = LlamaForCausalLM(config).to(torch.bfloat16).eval()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens).logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--mesh", default="tp=8")
    options = parser.parse_args()
    plan: dict[str, Any] = {f"model.model.layers.*.{name}": ColwiseParallel() for name in COLUMNS}
    plan |= {f"model.model.layers.*.{name}": RowwiseParallel() for name in ROWS}
    plan |= {"model.lm_head": ColwiseParallel()}

    def build(mesh: Any) -> Any:
        with torch.device("meta"):
            model = Logits(options.layers)
        return parallelize_module(model, mesh["tp"], plan), (torch.zeros(1, 64, dtype=torch.int64),)

    start = time.process_time()
    sharded = export_on_mesh(build, options.mesh)
    exported = time.process_time()
    lowered = lower(sharded.program, output_type="stablehlo", mesh=options.mesh, weights="args")
    end = time.process_time()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    held = sum(each.numel() for name, each in sharded.program.state_dict.items() if name.endswith("proj.weight"))
    with torch.device("meta"):
        whole = sum(each.numel() for name, each in Logits(options.layers).named_parameters() if "proj.weight" in name)
    print(f"export of two ranks {exported - start:.1f} CPU s, lowering {end - exported:.1f}, in all {end - start:.1f}")
    print(f"{memory:.0f} MB at most; a rank holds {held / whole:.4f} of the projections")
    print(lowered.communication())


if __name__ == "__main__":
    main()

"""Buddy Compiler's LLaMA example on `DynamoCompiler`: ``python -m examples.dynamo_llama``; small, random weights."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.decomposition import decompositions as inductor_decomp
from transformers import LlamaConfig, LlamaForCausalLM

from fx_importer.dynamo import DynamoCompiler
from fx_importer.dynamo.ops import tosa


def main() -> tuple[Any, list[torch.Tensor]]:
    """Import a step that fills the cache of keys and values, run it, and compare. Return the module and parameters."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = LlamaConfig(num_hidden_layers=2, num_key_value_heads=1, max_position_embeddings=16, **sizes)
    model = LlamaForCausalLM(config).eval()
    ids = torch.tensor([[1, 15, 4, 9]])
    compiler = DynamoCompiler(primary_registry=tosa.ops_registry, aot_autograd_decomposition=inductor_decomp)
    with torch.no_grad():
        module, params = compiler.importer(model, ids, use_cache=True)
        expected = model(ids, use_cache=True)
    assert compiler.lowered is not None
    logits, *cache = compiler.lowered.caller(backend="jit")(*params, ids)
    held = [tensor for layer in expected.past_key_values.layers for tensor in (layer.keys, layer.values)]
    torch.testing.assert_close([logits, *cache], [expected.logits, *held], rtol=1e-4, atol=1e-4)
    print(f"{len(params)} parameters; results: {', '.join(compiler.results)}")
    return module, params


if __name__ == "__main__":
    main()

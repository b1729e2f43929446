"""Buddy Compiler's BERT example on `DynamoCompiler`: ``python -m examples.dynamo_bert``; small, random weights."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.decomposition import decompositions as inductor_decomp
from transformers import BertConfig, BertModel

from fx_importer.dynamo import DynamoCompiler
from fx_importer.dynamo.ops import tosa


def main() -> tuple[Any, list[torch.Tensor]]:
    """Import the model to TOSA, run it, and compare. Return the module and its parameters."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    model = BertModel(BertConfig(num_hidden_layers=1, max_position_embeddings=16, **sizes)).eval()
    inputs = {"input_ids": torch.tensor([[2, 7, 11, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    compiler = DynamoCompiler(primary_registry=tosa.ops_registry, aot_autograd_decomposition=inductor_decomp)
    with torch.no_grad():
        module, params = compiler.importer(model, **inputs)
        expected = model(**inputs)
    assert compiler.lowered is not None
    hidden, pooled = compiler.lowered.caller(backend="jit")(*params, *inputs.values())
    torch.testing.assert_close(hidden, expected.last_hidden_state, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(pooled, expected.pooler_output, rtol=1e-4, atol=1e-4)
    print(f"{len(params)} parameters; results: {', '.join(compiler.results)}")
    return module, params


if __name__ == "__main__":
    main()

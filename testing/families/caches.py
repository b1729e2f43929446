"""Decoding with a cache of keys and values: one that is given and returned longer, and one that is written to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from testing.families.pretrained import LENGTH, numbers, small, tokens


class Step(nn.Module):
    """Two more tokens, after those that the cache holds (`DynamicCache`)."""

    def __init__(self, model: nn.Module) -> None:
        from fx_importer.llm.architectures.model_cache import cache_argument

        super().__init__()
        self.model, self.cache_argument = model, cache_argument(model)

    def forward(self, ids: Tensor, past: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[Tensor]]:
        import transformers

        cache: Any = transformers.DynamicCache()
        for layer, (keys, values) in enumerate(past):
            cache.update(keys, values, layer)
        logits = self.model(input_ids=ids, use_cache=True, **{self.cache_argument: cache}).logits
        return logits, [each for layer in cache.layers for each in (layer.keys, layer.values)]


def growing() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    import transformers

    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(small(transformers.LlamaConfig)).eval()
    past = [(numbers(2, LENGTH, 8), numbers(2, LENGTH, 8) + layer) for layer in range(2)]
    return Step(model).eval(), (tokens(2), past), {}


def fixed() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A cache of a fixed size in buffers, which the step writes to (`StaticCache`)."""
    import transformers
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(small(transformers.LlamaConfig)).eval()
    model.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=LENGTH,
        cache_config={"batch_size": 1, "max_cache_len": LENGTH, "device": "cpu"},
    )
    step = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=LENGTH, device=torch.device("cpu"))
    return step.eval(), (), {"input_ids": tokens(3)[:1], "cache_position": torch.arange(3)}


CACHES = {"growing_cache": growing, "fixed_cache": fixed}

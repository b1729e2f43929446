"""A causal language model of transformers with a static cache as state: what is exported.

The model's own code runs. Two things are given to it through transformers' interfaces: the layers of the cache, and the
attention function.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from fx_importer.llm.attention import ATTENTION, FUSED_ATTENTION
from fx_importer.llm.cache_layers import Steps, cache_buffers, cache_layer


class Decoder(torch.nn.Module):
    """Next-token logits of a model, and its cache: buffers ``cache.0.key``, ``cache.0.value``, …, [B, Hkv, L, D].

    Args:
        model: of transformers, in evaluation mode. Its attention function becomes ours.
        batch: the number of sequences, B.
        context: the number of positions that the cache holds: L, except in layers with a shorter window.
        fused: write attention of one token to caches of half precision for compilers that fuse sums.
    """

    def __init__(self, model: PreTrainedModel, batch: int, context: int, *, fused: bool = False):
        super().__init__()
        model.set_attn_implementation(FUSED_ATTENTION if fused else ATTENTION)
        model.set_experts_implementation("batched_mm")  # of mixtures: the only one of static shapes in each dtype
        self._model: PreTrainedModel
        object.__setattr__(self, "_model", model)  # not as a submodule: weights keep their names, those in its files
        for name, child in model.named_children():
            self.add_module(name, child)
        self.context = context
        self.cache = cache_buffers(model, batch, context)

    def forward(
        self,
        tokens: Tensor,
        position: Tensor,
        padding: Tensor,
        last: Tensor | None = None,
        targets: Tensor | None = None,
    ) -> Tensor:
        """Append ``tokens`` to the sequences, and return the logits after one of them, or what they say of ``targets``.

        Args:
            tokens: int64 [B, n].
            position: int64 [], the position of the first token.
            padding: int64 [B], how many positions at the start of each sequence are padding.
            last: int64 [], the index of the token after which logits are wanted, behind which there are no others; by
                default that of the last one.
            targets: int64 [B, n], a token for each of ``tokens``.

        Returns:
            The logits, [B, vocabulary]; with ``targets``, float32 [B, n], the logarithm of the probability of each
            after its token.
        """
        steps = Steps(position, tokens.shape[1], padding, last)
        logits = self._model(
            input_ids=tokens,
            attention_mask=torch.arange(self.context).unsqueeze(0) >= padding.unsqueeze(1),
            position_ids=(steps.positions.unsqueeze(0) - padding.unsqueeze(1)).clamp(min=0),
            past_key_values=Cache(layers=[cache_layer(each, self.context, steps) for each in self.cache]),
            use_cache=True,
            logits_to_keep=0 if targets is not None else 1 if last is None else last.reshape(1),
        ).logits
        if targets is None:
            return logits.squeeze(1)
        return logits.float().log_softmax(-1).gather(2, targets.unsqueeze(2)).squeeze(2)

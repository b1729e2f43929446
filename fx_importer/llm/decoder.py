"""The module to export: a transformers causal language model with its cache as state.

It runs the model's own code. Transformers' interfaces replace two parts of it: the cache layers and the attention
function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fx_importer.llm.attention import ATTENTION, FUSED_ATTENTION
from fx_importer.llm.cache_layers import CacheLayer, Steps, cache_argument, cache_buffers, cache_layer
from fx_importer.llm.layers_cache import LayersCache
from fx_importer.llm.lora_arguments import AdapterArguments, Matrices
from fx_importer.llm.paged_cache import PagedCacheLayer, PagedSteps
from fx_importer.llm.vision import takes_images, with_images


class _Decoder(torch.nn.Module):
    """The model with our attention function. It shares the model's submodules, so weights keep their stored names."""

    def __init__(self, model: PreTrainedModel, *, fused: bool, adapters: AdapterArguments | None):
        super().__init__()
        self._adapters = adapters
        self._cache_argument = cache_argument(model)
        ours = FUSED_ATTENTION if fused else ATTENTION
        model.set_attn_implementation({"text_config": ours, "vision_config": "sdpa"} if takes_images(model) else ours)
        model.set_experts_implementation("batched_mm")  # MoE: the only one with static shapes in every dtype
        self._model: PreTrainedModel
        object.__setattr__(self, "_model", model)
        for name, child in model.named_children():
            self.add_module(name, child)

    def _results(
        self,
        tokens: Tensor,
        layers: Sequence[CacheLayer],
        positions: Tensor,
        mask: Tensor | None,
        last: Tensor | None,
        targets: Tensor | None,
        images: Tensor | None = None,
        adapter: Matrices | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        embedded = None if images is None else with_images(self._model, tokens, images)

        def logits(keep: int | Tensor) -> Tensor:
            return self._model(
                input_ids=tokens if embedded is None else None,
                inputs_embeds=embedded,
                attention_mask=mask,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=keep,
                **{self._cache_argument: LayersCache(layers=list(layers))},
            ).logits

        with nullcontext() if self._adapters is None else self._adapters.given(adapter):
            if last is None or targets is None:
                return logits(0 if last is None else last.reshape(1)).squeeze(1)  # with a single token
            trunk = self._model.base_model
            with _run_once(trunk) as results:
                every = logits(0)
                shared = results and trunk is not self._model
                one = logits(last.reshape(1)) if shared else every.index_select(1, last.reshape(1))
        return one.squeeze(1), every.float().log_softmax(-1).gather(2, targets.unsqueeze(2)).squeeze(2)


class Decoder(_Decoder):
    """Next-token logits of a model with a static cache: buffers ``cache.0.key``, ``cache.0.value``, …, [B, Hkv, L, D].

    Args:
        model: a transformers model in evaluation mode. Its attention function is replaced by ours.
        batch: the number of sequences, B.
        context: the number of positions that the cache holds: L, except in layers with a shorter window.
        fused: write single-token attention over a half-precision cache for compilers that fuse reductions.
        adapters: the model's adapters, whose matrices ``forward`` takes.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        batch: int,
        context: int,
        *,
        fused: bool = False,
        adapters: AdapterArguments | None = None,
    ):
        super().__init__(model, fused=fused, adapters=adapters)
        self.context = context
        self.cache = cache_buffers(
            model, lambda heads, width, window: (batch, heads, min(context, window or context), width)
        )

    @property
    def has_rings(self) -> bool:
        """Whether some layers hold only the positions of a sliding window."""
        return any(each.get_buffer("key").shape[2] < self.context for each in self.cache)

    def forward(
        self,
        tokens: Tensor,
        position: Tensor,
        padding: Tensor,
        last: Tensor | None = None,
        targets: Tensor | None = None,
        images: Tensor | None = None,
        adapter: Matrices | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Append ``tokens`` to the sequences. Return logits and, with ``targets``, the log-probabilities of these.

        Args:
            tokens: int64 [B, n].
            position: int64 [], the position of the first token.
            padding: int64 [B], the number of padding positions at the start of each sequence.
            last: int64 [], the index of the last real token, whose logits are returned; everything after it is padding.
                By default, the logits of all tokens are returned.
            targets: int64 [B, n], a target for each of ``tokens``; only with ``last``.
            images: [B, n, hidden], the embeddings that replace image tokens in ``tokens``.
            adapter: the matrices of an adapter: `AdapterArguments`.

        Returns:
            The logits, [B, vocabulary] for one token or [B, n, vocabulary] for several. With ``targets``, also the
            log-probability of each target after its token, float32 [B, n].
        """
        steps = Steps(position, tokens.shape[1], padding, last)
        return self._results(
            tokens,
            [cache_layer(each, self.context, steps) for each in self.cache],
            (steps.positions.unsqueeze(0) - padding.unsqueeze(1)).clamp(min=0),
            torch.arange(self.context).unsqueeze(0) >= padding.unsqueeze(1),
            last,
            targets,
            images,
            adapter,
        )


class PagedDecoder(_Decoder):
    """Next-token logits of a model with a paged cache: ``cache.0.key``, ``cache.0.value``, …, [rows, Hkv, D].

    Args:
        model: a transformers model in evaluation mode. Its attention function is replaced by ours.
        context: the number of positions of the longest sequence.
        pages: the number of pages in the pool.
        page_size: the number of token slots per page.
        fused: write single-token attention over a half-precision cache for compilers that fuse reductions.
        adapters: the model's adapters, whose matrices ``forward`` takes.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        context: int,
        pages: int,
        page_size: int,
        *,
        fused: bool = False,
        adapters: AdapterArguments | None = None,
    ):
        super().__init__(model, fused=fused, adapters=adapters)
        self.context = context
        self.page_size = page_size
        self.cache = cache_buffers(model, lambda heads, width, window: (pages * page_size, heads, width))

    def forward(
        self,
        tokens: Tensor,
        pages: Tensor,
        lengths: Tensor,
        last: Tensor | None = None,
        targets: Tensor | None = None,
        adapter: Matrices | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Append ``tokens`` to the sequences, and return the same as `Decoder.forward`.

        Args:
            tokens: int64 [B, n].
            pages: int64 [B, P], the page table: `PagedSteps`.
            lengths: int64 [B], the positions of the first tokens.
            last, targets, adapter: see `Decoder.forward`.
        """
        steps = PagedSteps(pages, lengths, tokens.shape[1], self.page_size)
        layers = [PagedCacheLayer(each, steps) for each in self.cache]
        positions = steps.positions.clamp(max=self.context - 1)  # padding goes past the context
        return self._results(tokens, layers, positions, None, last, targets, adapter=adapter)


@contextmanager
def _run_once(module: torch.nn.Module) -> Iterator[list[Any]]:
    """Reuse the result of the first call of ``module`` for later calls in the body. Yield the list that receives it."""
    forward, results = module.forward, []

    def run(*args: Any, **kwargs: Any) -> Any:
        if not results:
            results.append(forward(*args, **kwargs))
        return results[0]

    module.forward = run
    try:
        yield results
    finally:
        del module.forward

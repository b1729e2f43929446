"""The module to export: a transformers causal language model with its cache as state.

It runs the model's own code. Transformers' interfaces replace two parts of it: the cache layers and the attention
function, or the mask where a model has attention code of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DummyLayer

from fx_importer.llm.architectures.attention import ATTENTION, FUSED_ATTENTION, own_attention, uses_interface
from fx_importer.llm.architectures.cache_layers import Steps
from fx_importer.llm.architectures.model_cache import cache_argument, cache_buffers, cache_layer, model_cache
from fx_importer.llm.architectures.model_types import own_cache
from fx_importer.llm.architectures.sources import CROSS_KEY, CROSS_VALUE, SOURCE_LENGTHS, EncoderInput
from fx_importer.llm.architectures.vision import attends_to_prompt, first_position, takes_images, with_images
from fx_importer.llm.checkpoints.lora_arguments import AdapterArguments, Matrices
from fx_importer.llm.paged_cache import PagedCacheLayer, PagedSteps


class _Decoder(torch.nn.Module):
    """The model with our attention function. It shares the model's submodules, so weights keep their stored names."""

    def __init__(self, model: PreTrainedModel, *, fused: bool, adapters: AdapterArguments | None):
        super().__init__()
        self._adapters = adapters
        self.cache: torch.nn.ModuleList
        self._cache_argument = cache_argument(model)
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        if uses_interface(model):
            ours = FUSED_ATTENTION if fused else ATTENTION
            names = {"text_config": ours, "vision_config": "sdpa"} if takes_images(model) else ours
            model.set_attn_implementation(names)
        model.set_experts_implementation("batched_mm")  # MoE: the only one with static shapes in every dtype
        self._model: PreTrainedModel
        object.__setattr__(self, "_model", model)
        for name, child in model.named_children():
            self.add_module(name, child)

    @property
    def is_plain(self) -> bool:
        """Whether all layers cache keys and values, and all attention is ours."""
        kinds = [{name for name, _ in layer.named_buffers()} for layer in self.cache]
        return uses_interface(self._model) and all(names == {"key", "value"} for names in kinds)

    def _results(
        self,
        tokens: Tensor,
        layers: Sequence[Any],
        positions: Tensor,
        mask: Tensor | None,
        last: Tensor | None,
        targets: Tensor | None,
        images: Tensor | None = None,
        adapter: Matrices | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        embedded = None if images is None else with_images(self._model, tokens, images)

        def logits(keep: int | Tensor) -> Tensor:
            with nullcontext() if uses_interface(self._model) else own_attention():
                scores = call(keep)
            return scores if self._keeps or not isinstance(keep, Tensor) else scores.index_select(1, keep)

        def call(keep: int | Tensor) -> Tensor:
            inputs = {"input_ids": tokens if embedded is None else None, "inputs_embeds": embedded}
            return self._model(
                **self._arguments(inputs, mask, positions, model_cache(self._model, layers)),
                use_cache=True,
                **({"logits_to_keep": keep} if self._keeps else {}),
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

    def _arguments(self, inputs: dict[str, Any], mask: Tensor | None, positions: Tensor, cache: Any) -> dict[str, Any]:
        """Return the model's arguments for new tokens."""
        return {**inputs, "attention_mask": mask, "position_ids": positions, self._cache_argument: cache}


class Decoder(_Decoder):
    """Next-token logits of a model with a static cache: buffers ``cache.0.key``, ``cache.0.value``, …, [B, Hkv, L, D].

    Layers with states have them as ``cache.0.conv0``, …, and ``cache.0.recurrent0``, …, [B, …].

    Args:
        model: a transformers model in evaluation mode. Its attention function is replaced by ours.
        batch: the number of sequences, B.
        context: the number of positions that the cache holds: L, except in layers with a shorter window.
        fused: write single-token attention over a half-precision cache for compilers that fuse reductions.
        adapters: the model's adapters, whose matrices ``forward`` takes.
        source: the input of the encoder of ``model``; None if it has none. See `source_decoder`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        batch: int,
        context: int,
        *,
        fused: bool = False,
        adapters: AdapterArguments | None = None,
        source: EncoderInput | None = None,
    ):
        super().__init__(model, fused=fused, adapters=adapters)
        self.context = context
        self.source = source
        self.cache = cache_buffers(
            model, lambda heads, width, window: (batch, heads, min(context, window or context), width), batch, source
        )
        own = own_cache(model)
        self._initial = {} if own is None else dict(own.initial)

    @property
    def has_rings(self) -> bool:
        """Whether some layers hold only the positions of a sliding window."""
        return any(
            name.endswith(".key") and buffer.shape[2] < self.context for name, buffer in self.cache.named_buffers()
        )

    @property
    def attends(self) -> bool:
        """Whether some layers cache keys and values."""
        return any(name.endswith(".key") for name, _ in self.cache.named_buffers())

    @property
    def has_states(self) -> bool:
        """Whether some layers have states. A call then takes one token of each sequence."""
        stateless = (".key", ".value", CROSS_KEY, CROSS_VALUE, SOURCE_LENGTHS)
        return any(not name.endswith(stateless) for name, _ in self.cache.named_buffers())

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
        is_prefix = images is not None and attends_to_prompt(self._model)
        steps = Steps(position, tokens.shape[1], padding, last, is_prefix=is_prefix)
        return self._results(
            tokens,
            [cache_layer(layer, self.context, steps, self._initial) for layer in self.cache],
            (steps.positions.unsqueeze(0) - padding.unsqueeze(1)).clamp(min=0) + first_position(self._model),
            torch.arange(self.context).unsqueeze(0) >= padding.unsqueeze(1) if self.attends else None,
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
        self.cache = cache_buffers(model, lambda heads, width, window: (pages * page_size, heads, width), None)

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
        layers = [
            PagedCacheLayer(layer, steps) if dict(layer.named_buffers()) else DummyLayer() for layer in self.cache
        ]
        positions = steps.positions.clamp(max=self.context - 1)  # padding goes past the context
        # Attention code of a model's own counts the keys by the mask.
        mask = None if uses_interface(self._model) else torch.ones_like(steps.rows, dtype=torch.bool)
        return self._results(tokens, layers, positions, mask, last, targets, adapter=adapter)


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

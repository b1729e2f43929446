"""Models of `transformers`, from configurations made small: two layers, narrow, random weights, seeded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

BATCH, LENGTH, SIDE = 2, 12, 32

_SMALL: tuple[tuple[Any, str], ...] = (
    (32, "hidden_size d_model n_embd dim hidden_dim embedding_size embed_dim d_embed lru_width word_embed_proj_dim "),
    (32, "attention_hidden_size entity_emb_size text_embed_dim query_dim image_size"),
    (2, "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_encoder_layers num_labels"),
    (2, "num_decoder_layers num_encoder_blocks num_key_value_heads num_experts_per_tok depth num_kv_heads"),
    (2, "num_sparse_encoder_layers num_sparse_decoder_layers"),
    (4, "num_attention_heads num_heads n_head n_heads encoder_attention_heads decoder_attention_heads state_size"),
    (4, "num_encoder_attention_heads num_decoder_attention_heads num_experts num_local_experts moe_num_experts"),
    (64, "intermediate_size ffn_dim d_ff d_inner n_inner encoder_ffn_dim decoder_ffn_dim max_position_embeddings"),
    (64, "n_positions n_ctx max_seq_len max_source_positions max_target_positions encoder_intermediate_size"),
    (99, "vocab_size"),
    (8, "head_dim d_kv d_head patch_size num_queries moe_intermediate_size"),
    (16, "projection_dim"),
    (0, "pad_token_id bos_token_id eos_token_id decoder_start_token_id forced_eos_token_id"),
    (0.3, "initializer_range init_std"),
    (False, "use_cache"),
)
_SETTINGS = {name: value for value, names in _SMALL for name in names.split()}


def small(kind: type[Any], **settings: Any) -> Any:
    """Return a configuration of ``kind``: what it has of the usual sizes made small, and ``settings``."""
    parameters = inspect.signature(kind.__init__).parameters
    found = {name: value for name, value in _SETTINGS.items() if name in parameters}
    for name, part in kind.sub_configs.items():
        own = settings.pop(name, {})
        if part.__name__ != "AutoConfig" and name in parameters:
            found[name] = small(part, **own).to_dict()
        elif own:
            found[name] = own
    return kind(**found | settings)


def tokens(length: int = LENGTH, vocabulary: int = 99, seed: int = 1) -> Tensor:
    """Return token ids, of which none is special: those are the first few."""
    return torch.randint(5, vocabulary - 5, (BATCH, length), generator=torch.Generator().manual_seed(seed))


def numbers(*shape: int) -> Tensor:
    """Return normal numbers, with the batch in front."""
    return torch.randn((BATCH, *shape), generator=torch.Generator().manual_seed(1))


def padding(length: int = LENGTH) -> Tensor:
    """Return ones, but for the last quarter of the second sentence."""
    mask = torch.ones(BATCH, length, dtype=torch.int64)
    mask[1, length - length // 4 :] = 0
    return mask


INPUTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "text": lambda: {"input_ids": tokens(), "attention_mask": padding()},
    "ids": lambda: {"input_ids": tokens()},
    "text to text": lambda: {
        "input_ids": tokens(),
        "attention_mask": padding(),
        "decoder_input_ids": tokens(6, seed=2),
        "use_cache": False,
    },
    "image": lambda: {"pixel_values": numbers(3, SIDE, SIDE)},
    "large image": lambda: {"pixel_values": numbers(3, 2 * SIDE, 2 * SIDE)},
    "image and text": lambda: {"pixel_values": numbers(3, SIDE, SIDE), "input_ids": tokens()},
    "wave": lambda: {"input_values": numbers(1600)},
    "spectrum to text": lambda: {"input_features": numbers(80, 128), "decoder_input_ids": tokens(6, seed=2)},
    "series": lambda: {"past_values": numbers(32, 2)},
}


@dataclass(frozen=True)
class Pretrained:
    """A model of `transformers`, made small."""

    name: str
    """Of its class."""
    family: str
    inputs: str | Callable[[], dict[str, Any]]
    """A name of `INPUTS`, or what makes the keyword arguments."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of its configuration; what is a function there is called first."""

    def build(self) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Return the model with example inputs."""
        import transformers

        torch.manual_seed(0)
        kind = getattr(transformers, self.name)
        settings = {name: value() if callable(value) else value for name, value in self.settings.items()}
        model = kind(small(kind.config_class, **settings)).eval()
        return model, (), INPUTS[self.inputs]() if isinstance(self.inputs, str) else self.inputs()


def alike(family: str, inputs: str | Callable[[], dict[str, Any]], names: str, **settings: Any) -> list[Pretrained]:
    """Return models that take the same inputs and settings; spaces are between their names."""
    return [Pretrained(name, family, inputs, settings) for name in names.split()]

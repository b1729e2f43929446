"""Folders of tiny language models with random weights, and a tokenizer of bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 257
END = 256
_COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "mistral": {"sliding_window": 8, "head_dim": 8},
    "gemma2": {"sliding_window": 8, "head_dim": 8, "query_pre_attn_scalar": 8},
    "gemma3_text": {
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
    },
    "phi3": {"pad_token_id": END, "sliding_window": 8},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "olmo": {},
    "olmo2": {},
    "smollm3": {"no_rope_layers": [1, 0], "pad_token_id": END},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "head_dim": 8,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "pad_token_id": END,
    },
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8},
}
"""The configurations, by model type."""


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are bytes, and one more that ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={each: number for number, each in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


def save_tiny_model(folder: Path, kind: str = "llama", seed: int = 0, **changes: Any) -> Any:
    """Write a model of the type ``kind`` with random weights to ``folder``, and return it."""
    torch.manual_seed(seed)
    common = {} if kind == "gpt2" else _COMMON
    config = AutoConfig.for_model(
        kind,
        **{
            **common,
            **CONFIGS[kind],
            "vocab_size": VOCABULARY,
            "eos_token_id": END,
            "tie_word_embeddings": False,
            **changes,
        },
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # so that tokens vary
                parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model

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
_MAMBA_2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 16}
_DELTA = {
    "head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
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
    "gpt_neox": {},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "rotary_dim": 4},
    "codegen": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "rotary_dim": 4},
    "falcon": {"alibi": True, "multi_query": False},
    "bloom": {"hidden_size": 48, "n_layer": 2, "n_head": 6},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 128},
    "mamba": {"state_size": 8},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16},
    "falcon_mamba": {"state_size": 8},
    "jamba": {
        "num_experts": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
    },
    "zamba2": {
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "mamba_d_state": 8,
        "n_mamba_heads": 4,
        "chunk_size": 16,
        "adapter_rank": 4,
    },
    "bamba": {"attn_layer_indices": [1], **_MAMBA_2},
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
        **_MAMBA_2,
    },
    "falcon_h1": {"mamba_d_ssm": 32, **_MAMBA_2, "mamba_n_heads": 4},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention", "mlp", "moe"],
        "head_dim": 8,
        "ssm_state_size": 8,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "n_groups": 2,
        "chunk_size": 16,
        "n_routed_experts": 4,
        "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "qwen3_next": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        **_DELTA,
    },
    "qwen3_5_text": _DELTA,
    "olmo_hybrid": {**_DELTA, "linear_num_value_heads": 2, "pad_token_id": END},
    "minimax": {"num_local_experts": 4, "num_experts_per_tok": 2, "block_size": 8, "head_dim": 8},
    "rwkv": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "context_length": 128},
    "xlstm": {"hidden_size": 64, "num_blocks": 2, "num_heads": 4, "qk_dim_factor": 1.0},
}
"""The configurations, by model type."""
COMPLETE = ("gpt2", "gptj", "codegen", "bloom", "mpt", "rwkv", "xlstm")
"""Those without the sizes in common."""
SINGLE = ("rwkv",)
"""Models whose code takes one sequence."""
STATES = tuple(CONFIGS)[tuple(CONFIGS).index("mamba") :]
"""Models that have layers with states."""


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are bytes, and one more that ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={each: number for number, each in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


def tiny_model(kind: str = "llama", seed: int = 0, **changes: Any) -> Any:
    """Return a model of the type ``kind`` with random weights."""
    torch.manual_seed(seed)
    common = {} if kind in COMPLETE else _COMMON
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
    return model


def save_tiny_model(folder: Path, kind: str = "llama", seed: int = 0, **changes: Any) -> Any:
    """Write a model of the type ``kind`` with random weights to ``folder``, and return it."""
    model = tiny_model(kind, seed, **changes)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model

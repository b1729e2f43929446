"""Tiny encoder-decoders with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from fx_importer.llm.checkpoints.model_folder import encoder_decoder_class
from tests.llm.tiny_models import END, VOCABULARY, tokenizer

_T5 = {
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
}
_BART = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
    "pad_token_id": 1,
}
_VIT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 8,
    "patch_size": 4,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "t5": _T5,
    "bart": _BART,
    "whisper": {
        **_BART,
        "max_source_positions": 12,
        "max_target_positions": 64,
        "num_mel_bins": 8,
        "bos_token_id": 2,
        "suppress_tokens": [5, 6],
        "begin_suppress_tokens": [7],
    },
    "mt5": _T5,
    "umt5": _T5,
    "switch_transformers": {**_T5, "num_experts": 4, "num_sparse_encoder_layers": 0, "num_sparse_decoder_layers": 0},
    "longt5": {**_T5, "local_radius": 4},
    "mbart": _BART,
    "marian": _BART,
    "pegasus": _BART,
    "blenderbot": _BART,
    "m2m_100": _BART,
    "plbart": _BART,
    "vision-encoder-decoder": {
        "encoder": {"model_type": "vit", **_VIT},
        "decoder": {
            "model_type": "bert",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "vocab_size": VOCABULARY,
            "is_decoder": True,
            "add_cross_attention": True,
        },
        "decoder_start_token_id": 2,
    },
}
"""The configurations, by model type."""


def source_model(kind: str, seed: int = 0) -> Any:
    """Return an encoder-decoder of the type ``kind`` with random weights."""
    torch.manual_seed(seed)
    entries = {"vocab_size": VOCABULARY, "eos_token_id": END, "tie_word_embeddings": False}
    config = AutoConfig.for_model(kind, **{**CONFIGS[kind], **entries})
    model = encoder_decoder_class(config)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # so that tokens vary
                parameter.normal_(0, 0.3)
    return model


def save_source_model(folder: Path, kind: str, seed: int = 0) -> Any:
    """Write a model of the type ``kind`` with random weights to ``folder``, and return what transformers reads there.

    Positions that it computes are not in the folder.
    """
    source_model(kind, seed).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    config = AutoConfig.from_pretrained(folder)
    return encoder_decoder_class(config).from_pretrained(folder).eval()

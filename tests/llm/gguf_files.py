"""GGUF files of tiny models, as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.llm.tiny_models import END, VOCABULARY, tokenizer

_HALVES = {"Q2_K": (80, 82), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
"""Where the scales of a block are; of others, at its start."""
_CONFIG: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "head_dim": 64,
    "rope_theta": 20000.0,
}
_GPT2 = {"n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 128}


def random_blocks(kind: str, rows: int, columns: int, seed: int) -> np.ndarray:
    """Return random weights of ``kind``, [rows, columns] or uint8 [rows, bytes], of about 0.1 to 0.3."""
    generator = np.random.default_rng(seed)
    if kind in ("F32", "F16", "BF16"):
        values = (0.2 * generator.normal(size=(rows, columns))).astype(np.float32)
        return gguf.quantize(values, gguf.GGMLQuantizationType[kind])
    weights, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = generator.integers(0, 256, (rows, columns // weights, nbytes), dtype=np.uint8)
    largest = {"Q8_0": 128, "Q6_K": 32 * 127, "Q4_K": 15 * 63, "Q5_K": 31 * 63, "Q5_0": 16, "Q5_1": 31}.get(kind, 8)
    for at in _HALVES.get(kind, (0,)):
        values = (0.5 / largest * generator.normal(size=blocks.shape[:2])).astype(np.float16)
        blocks[..., at : at + 2] = values[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def save_tiny_gguf(
    path: Path,
    architecture: str = "llama",
    kind_of: Callable[[str], str] = lambda name: "Q4_K",
    *,
    entries: Mapping[str, float] | None = None,
    others: Mapping[str, np.ndarray] | None = None,
    **changes: Any,
) -> Any:
    """Write a model with random weights to ``path``, and return the model of transformers with these weights.

    Args:
        path: the file.
        architecture: in the words of llama.cpp.
        kind_of: gives the type of each matrix by its name in the file.
        entries: more metadata.
        others: more tensors.
        changes: of the configuration.
    """
    torch.manual_seed(0)
    sizes = _GPT2 if architecture == "gpt2" else _CONFIG
    common = {"tie_word_embeddings": False, "vocab_size": VOCABULARY + 1, "eos_token_id": END}
    config = AutoConfig.for_model(architecture, **{**common, **sizes, **changes})
    model = AutoModelForCausalLM.from_config(config).eval()
    writer = gguf.GGUFWriter(path, architecture)
    _add_config(writer, config)
    _add_tokenizer(writer)
    if "gemma" in architecture:
        writer.add_unk_token_id(0)  # which the tokenizer of transformers needs
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for number, (name, parameter) in enumerate(model.named_parameters()):
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None
        if parameter.dim() == 1:
            with torch.no_grad():
                parameter.normal_(0.0 if name.endswith("bias") or "gemma" in architecture else 1.0, 0.1)
            values = parameter.detach().numpy() + (1 if "gemma" in architecture else 0)
            writer.add_tensor(stored, values)
            continue
        transposed = architecture == "gpt2" and "wte" not in name and "wpe" not in name and "lm_head" not in name
        rows, columns = parameter.shape[:: -1 if transposed else 1]
        kind = kind_of(stored) if "wpe" not in name else "F32"
        data = random_blocks(kind, rows, columns, number)
        type_ = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(stored, data, raw_dtype=type_)
        values = gguf.dequantize(data, type_)
        if architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            values = values.reshape(heads, -1, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values.T if transposed else values)))
    for key, value in (entries or {}).items():
        writer.add_float32(key, value)
    for name, values in (others or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model.generation_config.eos_token_id = END
    return model


def _add_config(writer: gguf.GGUFWriter, config: Any) -> None:
    heads = config.num_attention_heads
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(heads)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_vocab_size(config.vocab_size)
    if config.model_type == "gemma2":
        writer.add_sliding_window(config.sliding_window)
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    """Add bytes, an end, and one token of two bytes: without a merge, transformers looks for scores."""
    vocabulary = tokenizer().get_vocab()
    tokens = [*sorted(vocabulary, key=lambda each: vocabulary[each]), "th"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    kinds[END] = gguf.TokenType.CONTROL
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(END)

"""Read the configuration and the tokenizer of a causal language model from a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fx_importer.errors import NotInstalledError, UsageError
from fx_importer.process.optional_packages import is_installed
from fx_importer.weights import GgufHeader, read_gguf_header

_ATTRIBUTES = {
    "context_length": "n_positions",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention.sliding_window": "sliding_window",
    "attention.key_length": "head_dim",
}
"""Configuration attributes that transformers may not set, keyed by their GGUF metadata key."""
_MEASURED = {"gemma2": 46, "gemma3": 62}
"""The layer count of the 27B models, whose attention llama.cpp scales differently (``f_attention_scale``)."""


def read_config(path: Path) -> Any:
    """Return the transformers configuration of the model in ``path``.

    Raises:
        NotInstalledError: if gguf, which transformers needs, is not installed.
        UsageError: if the file is truncated, the architecture is not supported, or entries that transformers ignores
            would change the computation.
    """
    header = read_gguf_header(path)
    if not is_installed("gguf"):
        raise NotInstalledError("a GGUF file", "gguf", "gguf")
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    except (OSError, ValueError, KeyError, IndexError, NotImplementedError) as error:
        raise UsageError(
            f"transformers cannot read the configuration in '{path}', of the architecture '{header.architecture}': "
            f"{type(error).__name__}: {error}"
        ) from None
    _apply_others(config, header, path)
    return config


def read_tokenizer(path: Path) -> Any:
    """Return the transformers tokenizer in ``path``. Raises `UsageError` if it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(
            f"transformers cannot read the tokenizer in '{path}': {type(error).__name__}: {error}"
        ) from None


def _apply_others(config: Any, header: GgufHeader, path: Path) -> None:
    """Apply the metadata that `AutoConfig` ignores. Raises `UsageError` for entries that we do not know."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    kind = config.model_type.removesuffix("_text")
    read = {key for key, name in GGUF_CONFIG_MAPPING.get(kind, {}).items() if name is not None}
    prefix = f"{header.architecture}."
    entries = {key.removeprefix(prefix): entry for key, entry in header.metadata.items() if key.startswith(prefix)}
    for key, name in _ATTRIBUTES.items():
        if key in entries and hasattr(config, name):
            setattr(config, name, entries[key])
            read.add(key)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if hasattr(config, "query_pre_attn_scalar"):
        is_largest = config.num_hidden_layers == _MEASURED.get(kind)
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads if is_largest else head
    expected = {
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": head,
        "rope.scaling.type": "none",
        "feed_forward_length": 4 * config.hidden_size,
        "expert_count": 0,
        "expert_used_count": 0,
    }
    for key, value in entries.items():
        if key not in read and expected.get(key) != value:
            raise UsageError(
                f"'{path}' has the entry '{prefix}{key}', {value!r}, which fx_importer.llm does not handle; import the "
                "model of Hugging Face instead"
            )

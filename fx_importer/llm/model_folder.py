"""A folder of a Hugging Face model, checked before anything large is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_importer.errors import UsageError

MAX_BATCH = 8
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "chat_template.jinja",
)
"""The files of tokenizers, as transformers names them."""
_ANY_OF = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json")
_WEIGHTS = ("model.safetensors.index.json", "model.safetensors")


@dataclass(frozen=True)
class ModelFolder:
    """A folder with configuration, tokenizer and weights of a causal language model."""

    path: Path
    config: Any
    """The configuration, of transformers."""

    @classmethod
    def read(cls, path: Path) -> ModelFolder:
        """Check the files of ``path``, and read the configuration.

        Raises:
            UsageError: listing everything that is missing, or naming an architecture that is not supported.
        """
        from transformers import AutoConfig
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        if not (path / "config.json").is_file():
            raise UsageError(
                f"'{path}' holds no config.json: accepted is a folder that transformers' save_pretrained writes"
            )
        if problems := [*_missing_tokenizer(path), *_missing_weights(path)]:
            raise UsageError(f"'{path}' is not complete: {'; '.join(problems)}")
        try:
            kind = json.loads((path / "config.json").read_text(encoding="utf-8")).get("model_type")
        except (ValueError, AttributeError) as error:
            raise UsageError(f"'{path / 'config.json'}' is no configuration: {error}") from None
        if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            raise UsageError(
                f"'{path}' holds a model of the architecture {kind!r}, of which transformers has no causal language "
                "model: accepted are Llama, Qwen, Mistral, Gemma, Phi-3, GPT-2, OLMo and others of AutoModelForCausalLM"
            )
        return cls(path, AutoConfig.from_pretrained(path, local_files_only=True))

    @property
    def positions(self) -> int | None:
        """The number of positions that the model was made for; None if it does not say."""
        text = self.config.get_text_config()
        return getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)

    def checked_context(self, context: int | None) -> int:
        """Return the number of positions of the cache.

        Raises:
            UsageError: if it is not positive, or larger than the model's.
        """
        most = self.positions
        if context is None:
            return min(most or _DEFAULT_CONTEXT, _DEFAULT_CONTEXT)
        if context < 2 or (most is not None and context > most):
            bound = "" if most is None else f" and at most {most}, for which the model was made"
            raise UsageError(f"a context of {context} positions: accepted is at least 2{bound}")
        return context


_DEFAULT_CONTEXT = 4096


def check_batch(batch: int) -> None:
    """Raise `UsageError` for a number of sequences out of bounds."""
    if not 1 <= batch <= MAX_BATCH:
        raise UsageError(f"a batch of {batch} sequences: accepted are 1 to {MAX_BATCH}")


def _missing_tokenizer(path: Path) -> list[str]:
    if any((path / each).is_file() for each in _ANY_OF):
        return []
    return [f"there is no tokenizer (one of {', '.join(_ANY_OF)}): save it there, with tokenizer.save_pretrained"]


def _missing_weights(path: Path) -> list[str]:
    index, single = (path / each for each in _WEIGHTS)
    if single.is_file():
        return []
    if not index.is_file():
        return [f"there are no weights ({single.name}, or {index.name} and the files that it lists)"]
    try:
        listed = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError) as error:
        return [f"'{index.name}' is no index of safetensors files: {error}"]
    missing = sorted(each for each in listed if not (path / each).is_file())
    return [f"{index.name} lists files that are not there: {', '.join(missing)}"] if missing else []

"""A Hugging Face model folder or a GGUF file, validated before any large read."""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fx_importer.errors import UsageError, first_line
from fx_importer.json_text import parse_json
from fx_importer.llm.architectures.sources import has_encoder
from fx_importer.llm.architectures.vision import VISION
from fx_importer.llm.checkpoints.checkpoint_tensors import load_checkpoint
from fx_importer.llm.checkpoints.loaded_model import LoadedModel
from fx_importer.weights import stored_in

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
"""Names of tokenizer files in transformers."""
_ANY_OF = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json")
_ENCODER_DECODERS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
)
"""The tables of transformers with classes of encoder-decoders."""
_WEIGHTS = ("model.safetensors.index.json", "model.safetensors")


@dataclass(frozen=True)
class ModelSource(ABC):
    """Configuration, tokenizer and weights of a causal language model."""

    path: Path
    config: Any
    """The transformers configuration."""

    @property
    def is_quantized(self) -> bool:
        """Whether weight matrices are packed."""
        return getattr(self.config, "quantization_config", None) is not None

    @abstractmethod
    def load(self, dtype: torch.dtype | None) -> LoadedModel:
        """Return the model. It computes in ``dtype``, by default the dtype of its weights."""

    @abstractmethod
    def write_tokenizer(self, target: Path) -> None:
        """Write the tokenizer and the configuration files to the folder ``target``."""

    @property
    def positions(self) -> int | None:
        """The maximum number of positions in the model's configuration; None if it does not have one."""
        text = self.config.get_text_config()
        names = ("max_position_embeddings", "n_positions", "max_target_positions")
        return next((number for name in names if (number := getattr(text, name, None))), None)

    def checked_context(self, context: int | None) -> int:
        """Return the number of positions in the cache.

        Raises:
            UsageError: if ``context`` is less than 2, or larger than the model's maximum.
        """
        most = self.positions
        if context is None:
            return min(most or _DEFAULT_CONTEXT, _DEFAULT_CONTEXT)
        if context < 2 or (most is not None and context > most):
            bound = "" if most is None else f" and at most {most}, for which the model was made"
            raise UsageError(f"a context of {context} positions: accepted is at least 2{bound}")
        return context


@dataclass(frozen=True)
class ModelFolder(ModelSource):
    """A folder that transformers' ``save_pretrained`` writes."""

    @classmethod
    def read(cls, path: Path) -> ModelFolder:
        """Check the files in ``path``, and read the configuration.

        Raises:
            UsageError: if files are missing, listing all of them, or if the architecture is not supported.
        """
        from transformers import AutoConfig
        from transformers.models.auto import modeling_auto

        if not (path / "config.json").is_file():
            raise UsageError(
                f"'{path}' holds no config.json: accepted is a folder that transformers' save_pretrained writes, or a "
                "GGUF file"
            )
        if problems := [*_missing_tokenizer(path), *_missing_weights(path)]:
            raise UsageError(f"'{path}' is not complete: {'; '.join(problems)}")
        try:
            config = parse_json((path / "config.json").read_bytes(), finite=False)
            kind = config.get("model_type")
            _check_numbers(config, path)
        except (OSError, ValueError, AttributeError) as error:
            raise UsageError(f"'{path / 'config.json'}' is not a configuration: {error}") from None
        encoders = {name for table in _ENCODER_DECODERS for name in getattr(modeling_auto, f"{table}_NAMES")}
        if kind not in (*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *VISION, *encoders):
            raise UsageError(
                f"'{path}' holds a model of the architecture {kind!r}, of which transformers has no causal language "
                "model: accepted are Llama, Qwen, Mistral, Gemma, Phi-3, GPT-2, OLMo and others of "
                "AutoModelForCausalLM, encoder-decoders such as T5, BART and Whisper, and models that take images: "
                f"{', '.join(VISION)}"
            )
        try:
            return cls(path, AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False))
        except Exception as error:  # of transformers, of any type
            reason = " ".join(str(error).split())
            raise UsageError(f"transformers cannot read '{path / 'config.json'}': {reason}") from error

    def load(self, dtype: torch.dtype | None) -> LoadedModel:
        """Return the model. It computes in ``dtype``, by default the dtype of its weights."""
        from transformers import GenerationConfig
        from transformers.models.auto import modeling_auto

        from fx_importer.llm.checkpoints.gptq import load_words

        stored = {
            name: tensor.read(tensor.type) for name, tensor in stored_in(self.path).items() if tensor.type is not None
        }
        try:
            if has_encoder(self.config):
                kind: Any = encoder_decoder_class(self.config)
            else:
                images = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
                texts = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING
                kind = (images if self.config.model_type in VISION else texts)[type(self.config)]
            if self.is_quantized:
                model = load_words(kind, self.config, stored, dtype, self.path)
            else:
                model = load_checkpoint(kind, self.config, stored, dtype or "auto", self.path)
            if (self.path / "generation_config.json").is_file():
                model.generation_config = GenerationConfig.from_pretrained(self.path, local_files_only=True)
        except UsageError:
            raise
        except Exception as error:  # of transformers, of any type: an edited configuration fails anywhere
            raise UsageError(f"transformers cannot load '{self.path}': {type(error).__name__}: {error}") from error
        return LoadedModel(model.eval(), stored)

    def write_tokenizer(self, target: Path) -> None:
        """Copy the tokenizer and configuration files to the folder ``target``."""
        for name in (*TOKENIZER_FILES, "generation_config.json", "config.json"):
            if (self.path / name).is_file():
                shutil.copyfile(self.path / name, target / name)


@dataclass(frozen=True)
class GgufFile(ModelSource):
    """A GGUF file, the format of llama.cpp."""

    tokenizer: Any
    """The transformers tokenizer."""

    @property
    def is_quantized(self) -> bool:
        """Always true: GGUF matrices are treated as packed, even in floating-point formats."""
        return True

    @classmethod
    def read(cls, path: Path) -> GgufFile:
        """Read the configuration and the tokenizer in ``path``. Raises `UsageError` if either is not supported."""
        from fx_importer.llm.checkpoints.gguf_config import read_config, read_tokenizer

        return cls(path, read_config(path), read_tokenizer(path))

    def load(self, dtype: torch.dtype | None) -> LoadedModel:
        """Return the model. It computes in ``dtype``, by default the file's dtype, or float32 for quantized blocks."""
        from fx_importer.llm.checkpoints.gguf_model import load_gguf

        return load_gguf(self.path, self.config, dtype)

    def write_tokenizer(self, target: Path) -> None:
        """Write the tokenizer and the configuration to the folder ``target``."""
        try:
            self.tokenizer.save_pretrained(target)
            self.config.save_pretrained(target)
        except OSError:
            raise
        except Exception as error:  # of the tokenizers library, where the disk is full
            raise OSError(first_line(error)) from error


def read_source(path: Path) -> ModelSource:
    """Return the model folder or GGUF file at ``path``. Raises `UsageError` if it is incomplete or not supported."""
    return GgufFile.read(path) if path.suffix == ".gguf" else ModelFolder.read(path)


_DEFAULT_CONTEXT = 4096
_MAX_NUMBER = 2**63
_LAYERS = re.compile(r"(^|_)(num|n)_(hidden_)?layers?$")
_SIZES = re.compile(r"(^|_)(size|dim|heads?|experts|n_embd|n_inner|rank)$")


def encoder_decoder_class(config: Any) -> Any:
    """Return the transformers class of an encoder-decoder. Raises `UsageError` if there is none for ``config``."""
    from transformers.models.auto import modeling_auto

    for name in _ENCODER_DECODERS:
        table: Any = getattr(modeling_auto, name)
        if type(config) in table:
            return table[type(config)]
    raise UsageError(
        f"transformers has no model that generates text for {type(config).__name__}: accepted are encoder-decoders of "
        "AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq and AutoModelForImageTextToText"
    )


def check_batch(batch: int) -> None:
    """Raise `UsageError` if the batch size is out of bounds."""
    if not 1 <= batch <= MAX_BATCH:
        raise UsageError(f"a batch of {batch} sequences: accepted are 1 to {MAX_BATCH}")


def _missing_tokenizer(path: Path) -> list[str]:
    if any((path / file).is_file() for file in _ANY_OF):
        return []
    return [f"there is no tokenizer (one of {', '.join(_ANY_OF)}): save it there, with tokenizer.save_pretrained"]


def _missing_weights(path: Path) -> list[str]:
    index, single = (path / weight for weight in _WEIGHTS)
    if single.is_file():
        return []
    if not index.is_file():
        return [f"there are no weights ({single.name}, or {index.name} and the files that it lists)"]
    try:
        listed = set(parse_json(index.read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"'{index.name}' is not an index of safetensors files: {error}"]
    if not all(isinstance(file, str) and "\0" not in file for file in listed):
        return [f"'{index.name}' is not an index of safetensors files: a name is not text"]
    missing = sorted(file for file in listed if not (path / file).is_file())
    return [f"{index.name} lists files that are not there: {', '.join(missing)}"] if missing else []


def _check_numbers(config: Any, path: Path) -> None:
    """Raise ValueError for counts of layers and experts, and sizes, that the stored weights cannot have."""
    stored = stored_in(path)
    elements = max((tensor.nbytes for tensor in stored.values()), default=0)
    for name, number in _numbers(config):
        most = len(stored) if _LAYERS.search(name) else 8 * elements if _SIZES.search(name) else _MAX_NUMBER
        if not abs(number) <= most:
            raise ValueError(f"'{name}' is {number:,}, more than the weights have")


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    """Yield the integers of a configuration by name, also in its parts."""
    for name, value in config.items():
        if type(value) is int:
            yield name, value
        elif isinstance(value, dict):
            yield from _numbers(value)

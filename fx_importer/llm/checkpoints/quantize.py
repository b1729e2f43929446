"""Quantize the weights of a transformers model by replacing its linear layers and embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.pytorch_utils import Conv1D

from fx_importer.engines.engine_table import DEFAULT_ENGINE, language_model_engines
from fx_importer.errors import NotInstalledError, UsageError
from fx_importer.llm.checkpoints.packed_weights import GROUP, PACKINGS, Int8Embedding, check_finite
from fx_importer.process.optional_packages import is_installed


def quantize(model: Any, name: str, *, engine: str = DEFAULT_ENGINE) -> None:
    """Replace the linear layers and embeddings of ``model`` with ones that have packed weights, in place.

    Every format uses int8 for embeddings, the output layer, and layers whose row length is not a multiple of two
    groups.

    Args:
        model: a transformers model.
        name: a format in `PACKINGS`.
        engine: the engine that reductions are optimized for; the model still runs on others.

    Raises:
        UsageError: if the model has weights outside linear layers, such as MoE experts, or values that are not finite.
    """
    stacked = [key for key, parameter in model.named_parameters() if parameter.dim() > 2]
    if stacked:
        raise UsageError(
            f"{type(model).__name__} has weights that are not those of linear layers, as '{stacked[0]}' (experts are "
            "stacked): they cannot be quantized, import it without"
        )
    packing = _Packing(model, name, language_model_engines()[engine].sum_lanes)
    for path, module in list(model.named_modules()):
        if (new := packing.replacement(path, module)) is not None:
            parent, _, child = path.rpartition(".")
            setattr(model.get_submodule(parent), child, new)


def quantize_by_torchao(model: Any, config: Any) -> None:
    """Quantize the linear layers of ``model`` in place, with torchao's ``quantize_``.

    Raises:
        NotInstalledError: if torchao is not installed.
        UsageError: if ``config`` is not a torchao configuration, or torchao does not support it on this machine.
    """
    if not is_installed("torchao"):
        raise NotInstalledError("a quantization by torchao", "torchao", "quantize")
    from torchao.core.config import AOBaseConfig
    from torchao.quantization import quantize_

    if not isinstance(config, AOBaseConfig):
        raise UsageError(f"quantize={config!r}: accepted are {', '.join(PACKINGS)}, and configurations of torchao")
    try:
        quantize_(model, config)
    except (ImportError, AssertionError, NotImplementedError, ValueError, RuntimeError) as error:
        raise UsageError(f"torchao cannot quantize by {type(config).__name__} here: {error}") from error


class _Packing:
    """The packed weights of a model. A weight that several modules share is packed once."""

    def __init__(self, model: Any, name: str, lanes: int):
        embeddings = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
        self._kept = {id(embedding.weight) for embedding in embeddings if not _is_plain(embedding)}
        self._in_8_bits = {
            id(module.weight) for module in (*embeddings, model.get_output_embeddings()) if module is not None
        }
        self._name, self._lanes = name, lanes
        self._packed: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # also holds the weight, so that its id stays valid

    def replacement(self, path: str, module: torch.nn.Module) -> torch.nn.Module | None:
        """Return the replacement for ``module``; None to keep it."""
        if not isinstance(module, torch.nn.Linear | torch.nn.Embedding | Conv1D) or id(module.weight) in self._kept:
            return None
        weight = module.weight
        columns = weight.shape[0 if isinstance(module, Conv1D) else 1]
        name = "int8" if id(weight) in self._in_8_bits or columns % (2 * GROUP) else self._name
        packed, scale = self._pack(path, weight, name, transposed=isinstance(module, Conv1D))
        if isinstance(module, torch.nn.Embedding):
            return Int8Embedding(packed, scale, weight.dtype, embedding_factor(module, weight.dtype))
        return PACKINGS[name][1](packed, scale, module.bias, self._lanes)

    def _pack(self, path: str, weight: Tensor, name: str, *, transposed: bool) -> tuple[Tensor, Tensor]:
        if id(weight) not in self._packed:
            with torch.no_grad():
                packed, scale = PACKINGS[name][0](weight.t() if transposed else weight)
            check_finite(scale, f"{path}.weight")
            self._packed[id(weight)] = (packed, scale, weight)
        return self._packed[id(weight)][:2]


def embedding_factor(module: torch.nn.Embedding, dtype: torch.dtype) -> Tensor | None:
    """Return the factor that ``module`` scales its rows by, rounded to ``dtype``; None if it does not scale them."""
    factor = getattr(module, "embed_scale", None)
    return None if factor is None else torch.as_tensor(factor).to(dtype)


def _is_plain(module: torch.nn.Embedding) -> bool:
    """Return whether ``module`` only looks up rows and, optionally, scales them."""
    plain = type(module) is torch.nn.Embedding or hasattr(module, "embed_scale")
    return plain and module.max_norm is None

"""Load a causal language model from a GGUF file, with its weights left in GGUF blocks.

transformers provides the mapping of tensor names, and the changes that llama.cpp's converter made
(`TENSOR_PROCESSORS`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.pytorch_utils import Conv1D

from fx_importer.errors import UsageError
from fx_importer.llm.architectures.cache_layers import zeros
from fx_importer.llm.checkpoints.checkpoint_tensors import load_checkpoint
from fx_importer.llm.checkpoints.gguf_blocks import FORMATS, BlockEmbedding, BlockLinear
from fx_importer.llm.checkpoints.loaded_model import LoadedModel
from fx_importer.llm.checkpoints.quantize import embedding_factor
from fx_importer.weights import GgufHeader, GgufTensor, read_gguf_header, stored_in

_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_FACTORS = "rope_freqs.weight"
"""Llama 3's tensor of factors for the RoPE wavelengths, [D / 2]."""


class RowPermutation(torch.nn.Module):
    """A linear layer that reorders its outputs within each head.

    For RoPE, llama.cpp pairs the elements 2 i and 2 i + 1 of a head, and transformers pairs i and i + D / 2.
    """

    def __init__(self, linear: torch.nn.Module, heads: int):
        super().__init__()
        self.linear, self._heads = linear, heads

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs, [..., N], in transformers' order."""
        return self.linear(x).unflatten(-1, (self._heads, -1, 2)).transpose(-1, -2).flatten(-3)


def load_gguf(path: Path, config: Any, dtype: torch.dtype | None) -> LoadedModel:
    """Return the model of ``config`` with the weights of ``path``. It computes in ``dtype``.

    Matrices stay in the file, in one of the `FORMATS`. If the converter permuted the rows of a matrix, the layer's
    outputs are reordered. Vectors are converted to ``dtype``, which defaults to the file's dtype, or to float32 if the
    file has quantized blocks.

    Raises:
        UsageError: listing tensors that are missing, unknown to the model, or of an unsupported type.
    """
    return _Loader(path, config, dtype).load()


class _Loader:
    def __init__(self, path: Path, config: Any, dtype: torch.dtype | None):
        from transformers.modeling_gguf_pytorch_utils import (
            TENSOR_PROCESSORS,
            TensorProcessor,
            get_gguf_hf_weights_map,
        )
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

        self._path, self._config = path, config
        self._header = read_gguf_header(path)
        self._tensors = {
            name: tensor.read(tensor.type) for name, tensor in stored_in(path).items() if tensor.type is not None
        }
        self._dtype = dtype or _dtype_of(self._header)
        self._kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        with torch.device("meta"):
            self._meta = self._kind(config)
        processor = TENSOR_PROCESSORS.get(self._header.architecture, TensorProcessor)
        self._processor = processor(config=config.to_dict())
        names = get_gguf_hf_weights_map(self._meta, self._processor)
        self._names = {name: names[name] for name in self._tensors if name in names}
        self._check()

    def _check(self) -> None:
        tied = dict(self._meta.named_parameters(remove_duplicate=False)).keys() - dict(self._meta.named_parameters())
        wanted = self._meta.state_dict().keys() - tied - set(self._names.values())
        if self._config.tie_word_embeddings:
            wanted -= set(self._meta._tied_weights_keys or ())
        problems = [f"there is no tensor for '{name}'" for name in sorted(wanted)]
        unknown = self._tensors.keys() - self._names.keys() - {_FACTORS}
        problems += [f"the model has no weight for '{name}'" for name in sorted(unknown)]
        for name in self._names:
            tensor = self._header.tensors[name]
            if tensor.kind not in FORMATS:
                problems.append(f"'{name}' is of the type {tensor.kind}; accepted are {', '.join(FORMATS)}")
        if problems:
            more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise UsageError(f"'{self._path}' does not hold what the model needs: {'; '.join(problems[:5])}{more}")

    def load(self) -> LoadedModel:
        layers = {name: _layer_of(self._meta, self._names[name]) for name in self._names}
        state: dict[str, Tensor] = {}
        loaded = LoadedModel(None, self._tensors)
        for name, target in self._names.items():
            shape = self._meta.state_dict()[target].shape
            if layers[name] is not None:
                state[target] = zeros(tuple(shape), self._dtype)  # replaced below
            else:
                state[target] = self._vector(name, shape)
                if state[target].data_ptr() == self._tensors[name].data_ptr():
                    loaded.names[target] = name
        loaded.model = load_checkpoint(self._kind, self._config, state, self._dtype, self._path)
        for name, path in layers.items():
            if path is not None and name.endswith(".weight"):
                self._replace(loaded, name, path)
        if _FACTORS in self._tensors:
            _divide_frequencies(loaded.model, self._tensors[_FACTORS], self._path)
        loaded.model.eval()
        return loaded

    def _vector(self, name: str, shape: torch.Size) -> Tensor:
        """Return a tensor other than a layer's matrix, in the model's form. If unchanged, it aliases the file."""
        stored = self._tensors[name]
        if self._header.tensors[name].kind not in _FLOATS:
            raise UsageError(f"'{self._path}': '{name}' is {self._header.tensors[name].kind}, and no matrix of a layer")
        values = stored.float().numpy()
        made = self._processor.process(values, name).weights
        if tuple(made.shape) != tuple(shape):
            raise UsageError(f"'{self._path}': '{name}' is {list(made.shape)}, and the model needs {list(shape)}")
        same = stored.dtype == self._dtype and made is values
        return stored if same else torch.from_numpy(np.ascontiguousarray(made)).to(self._dtype)

    def _replace(self, loaded: LoadedModel, name: str, path: str) -> None:
        """Replace the layer at ``path``, and all layers that share its weight, by layers with the weight ``name``."""
        described, weight = self._header.tensors[name], self._tensors[name]
        module = loaded.model.get_submodule(path)
        bias = self._tensors.get(f"{name.removesuffix('.weight')}.bias")
        rows, columns = module.weight.shape[:: -1 if isinstance(module, Conv1D) else 1]
        if described.sizes != (rows, columns):
            raise UsageError(
                f"'{self._path}': '{name}' is {list(described.sizes)}, and the model needs {[rows, columns]}"
            )
        heads = self._permuted_heads(name, rows, transposed=isinstance(module, Conv1D))
        packed = torch.nn.Parameter(weight, requires_grad=False)
        shared = [path_ for path_, other in loaded.model.named_modules() if _weight(other) is module.weight]
        for place in shared:
            old = loaded.model.get_submodule(place)
            new = self._layer(old, packed, described, bias)
            if heads is not None:
                new = RowPermutation(new, heads)
            loaded.model.set_submodule(place, new)
        inner = f"{path}.linear" if heads is not None else path
        loaded.names[f"{inner}.weight"] = name
        if bias is not None and bias.dtype == self._dtype:
            loaded.names[f"{inner}.bias"] = f"{name.removesuffix('.weight')}.bias"

    def _layer(
        self, old: torch.nn.Module, weight: torch.nn.Parameter, described: GgufTensor, bias: Tensor | None
    ) -> torch.nn.Module:
        kind = described.kind
        if isinstance(old, torch.nn.Embedding):
            return BlockEmbedding(weight, kind, self._dtype, embedding_factor(old, self._dtype))
        if bias is not None:
            bias = bias.to(self._dtype)
        if _FLOATS.get(kind) is not self._dtype:
            return BlockLinear(weight, kind, bias)
        with torch.device("meta"):
            new = torch.nn.Linear(described.sizes[1], described.sizes[0], bias=bias is not None)
        new.weight = weight
        if bias is not None:
            new.bias = torch.nn.Parameter(bias, requires_grad=False)
        return new

    def _permuted_heads(self, name: str, rows: int, *, transposed: bool) -> int | None:
        """Return the number of heads if the converter permuted a matrix's rows within heads; None if it did not.

        Raises:
            UsageError: if transformers undoes any other change.
        """
        numbers = np.arange(rows, dtype=np.float32)[:, None]
        try:
            made = np.asarray(self._processor.process(numbers, name, parsed_parameters={"tensors": {}}).weights)
        except (ValueError, KeyError):  # the processor needs all columns
            made = numbers[:0]
        made = made.T if transposed or (made.shape == (1, rows) and rows > 1) else made
        if np.array_equal(made, numbers):
            return None
        for heads in {self._config.num_attention_heads, self._config.num_key_value_heads}:
            if rows % (2 * heads) == 0:
                permuted = numbers.reshape(heads, -1, 2, 1).swapaxes(1, 2).reshape(rows, 1)
                if np.array_equal(made, permuted):
                    return heads
        raise UsageError(
            f"'{self._path}': transformers reorders '{name}' in a way that fx_importer.llm does not handle"
        )


def _weight(module: torch.nn.Module) -> Any:
    return getattr(module, "weight", None)


def _layer_of(model: torch.nn.Module, target: str) -> str | None:
    """Return the path of the linear or embedding layer that owns ``target``; None if another module owns it."""
    path = target.rpartition(".")[0]
    return path if isinstance(model.get_submodule(path), torch.nn.Linear | torch.nn.Embedding | Conv1D) else None


def _dtype_of(header: GgufHeader) -> torch.dtype:
    kinds = {tensor.kind for tensor in header.tensors.values()}
    halves = [_FLOATS[kind] for kind in ("BF16", "F16") if kind in kinds]
    return halves[0] if halves and kinds <= _FLOATS.keys() else torch.float32


def _divide_frequencies(model: torch.nn.Module, factors: Tensor, path: Path) -> None:
    """Divide the RoPE frequencies by ``factors``."""
    modules = [module for module in model.modules() if isinstance(getattr(module, "inv_freq", None), Tensor)]
    if len(modules) != 1 or modules[0].get_buffer("inv_freq").shape != factors.shape:
        raise UsageError(f"'{path}' holds '{_FACTORS}', which does not fit {type(model).__name__}")
    frequencies = modules[0].get_buffer("inv_freq")
    modules[0].register_buffer("inv_freq", frequencies / factors.to(frequencies.dtype), persistent=False)

"""Adapters of peft (LoRA) as arguments of a module: matrices that may change from call to call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.pytorch_utils import Conv1D

from fx_importer.calls.caller import Caller
from fx_importer.errors import UsageError
from fx_importer.frontend.torch_patches import tracing
from fx_importer.llm.gguf_model import RowPermutation
from fx_importer.llm.lora import read_adapter
from fx_importer.llm.packed_weights import PackedLinear
from fx_importer.llm.settings import AdapterForm

Matrices = dict[str, Tensor]
"""A, float32 [r, K], and B, float32 [N, r], of linear layers by `_names`; the scale of the adapter is in B."""

_LINEAR = (torch.nn.Linear, Conv1D, PackedLinear, RowPermutation)
_WITHOUT = ("encode_image",)
"""The functions that take no adapter."""


class AdapterArguments:
    """Adds B A x to what linear layers of a model return for x, with matrices that are given for each call.

    Products are in float32, and the sum is rounded to the dtype of the layer's result, as peft does it for adapters in
    float32. Weights are not touched: they may be packed.

    Args:
        model: of transformers.
        rank: r.
        targets: the ends of the paths of layers, as peft's ``target_modules``; by default all linear layers but that of
            the logits.

    Raises:
        UsageError: for a rank that is not positive, and targets of which the model has no linear layer.
    """

    def __init__(self, model: Any, rank: int, targets: Sequence[str] | None = None):
        if rank < 1:
            raise UsageError(f"adapters of rank {rank}: accepted is 1 or more")
        layers = _linear_layers(model, targets)
        sizes = _sizes(model, layers)
        self.form = AdapterForm(rank, sizes)
        self._given: Matrices | None = None
        for path in sizes:
            layers[path].register_forward_hook(partial(self._sum, path))

    @contextmanager
    def given(self, matrices: Matrices | None) -> Iterator[None]:
        """Add the products of ``matrices`` in the calls within."""
        self._given = matrices
        try:
            yield
        finally:
            self._given = None

    def _sum(self, path: str, module: torch.nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> Tensor:
        if self._given is None:
            return result
        first, second = (self._given[name] for name in _names(path))
        added = torch.nn.functional.linear(torch.nn.functional.linear(inputs[0].float(), first), second)
        return (result.float() + added).to(result.dtype)


def _linear_layers(model: Any, targets: Sequence[str] | None) -> dict[str, torch.nn.Module]:
    logits = model.get_output_embeddings()
    found: dict[str, torch.nn.Module] = {}
    for path, module in model.named_modules():
        inner = path.rpartition(".")[0] in found  # of a RowPermutation
        if isinstance(module, _LINEAR) and not inner and (targets is not None or module is not logits):
            found[path] = module
    if targets is None:
        return found
    ends = [f".{each}" for each in targets]
    if wrong := [
        each for each, end in zip(targets, ends, strict=True) if not any(f".{p}".endswith(end) for p in found)
    ]:
        names = sorted({path.rpartition(".")[2] for path in found})
        raise UsageError(
            f"{type(model).__name__} has no linear layer {wrong[0]!r} for adapters: accepted are ends of paths, as "
            f"{', '.join(names)}"
        )
    return {path: module for path, module in found.items() if f".{path}".endswith(tuple(ends))}


def _sizes(model: Any, layers: Mapping[str, torch.nn.Module]) -> dict[str, tuple[int, int]]:
    """Return K and N of the layers that a call of the model runs: those of a call on nothing."""
    found: dict[str, tuple[int, int]] = {}

    def note(path: str, module: torch.nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        found[path] = (inputs[0].shape[-1], result.shape[-1])

    handles = [module.register_forward_hook(partial(note, path)) for path, module in layers.items()]
    try:
        with tracing(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            model(input_ids=torch.zeros(1, 1, dtype=torch.int64))
    finally:
        for each in handles:
            each.remove()
    return found


def _names(path: str) -> tuple[str, str]:
    """Return the names of A and B of the layer at ``path``."""
    return f"{path}.lora_A", f"{path}.lora_B"


def no_adapter(form: AdapterForm) -> Matrices:
    """Return matrices of zeros, which change nothing."""
    found: Matrices = {}
    for path, (columns, rows) in form.layers.items():
        shapes = (form.rank, columns), (rows, form.rank)
        found |= {name: torch.zeros(shape) for name, shape in zip(_names(path), shapes, strict=True)}
    return found


def adapter_matrices(form: AdapterForm, folder: Path) -> Matrices:
    """Return the matrices of the adapter of peft in ``folder``, with zeros for what it does not have.

    Raises:
        UsageError: for a folder without an adapter, options other than those of plain LoRA, layers that the module was
            not imported for, and a larger rank or another size.
    """
    found = no_adapter(form)
    for path, (first, second, scale) in read_adapter(folder).items():
        if path not in form.layers:
            raise UsageError(
                f"'{folder}' changes '{path}', for which the module takes no adapter: import the model with "
                "adapter_targets that have it, or with lora="
            )
        columns, rows = form.layers[path]
        rank = first.shape[0]
        if (first.shape[1], second.shape[0]) != (columns, rows) or rank > form.rank:
            raise UsageError(
                f"'{folder}' has matrices of rank {rank} for '{path}', [{second.shape[0]}, {first.shape[1]}]: the "
                f"module takes ranks up to {form.rank}, and the layer is [{rows}, {columns}]"
            )
        first_name, second_name = _names(path)
        found[first_name][:rank] = first
        found[second_name][:, :rank] = second.float() * scale
    return found


class AdaptedCaller(Caller):
    """A caller whose functions get the matrices of an adapter with each call."""

    adapter: Matrices

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return a callable for the function ``name``, which passes the adapter."""
        function = super().__getitem__(name)
        if name in _WITHOUT:
            return function
        return lambda *arguments, **named: function(*arguments, **named, adapter=self.adapter)

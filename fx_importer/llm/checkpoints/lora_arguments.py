"""PEFT LoRA adapters as arguments of a module: the matrices can change from call to call."""

from __future__ import annotations

import os
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
from fx_importer.llm.checkpoints.gguf_model import RowPermutation
from fx_importer.llm.checkpoints.lora import read_adapter
from fx_importer.llm.checkpoints.packed_weights import PackedLinear
from fx_importer.llm.settings import AdapterForm

Matrices = dict[str, Tensor]
"""A, float32 [r, K], and B, float32 [N, r], of each linear layer, keyed by `_names`; B includes the adapter's scale."""

_LINEAR = (torch.nn.Linear, Conv1D, PackedLinear, RowPermutation)
_WITHOUT = ("encode_image",)
"""Functions that take no adapter."""


class AdapterArguments:
    """Adds B A x to the output of a model's linear layers for input x. Each call passes the matrices.

    The matmuls run in float32, and the sum is rounded to the dtype of the layer's output, as PEFT does for float32
    adapters. Weights are not modified, so they may be packed.

    Args:
        model: a transformers model.
        rank: r.
        targets: suffixes of layer paths, like PEFT's ``target_modules``; by default all linear layers except the
            output head.

    Raises:
        UsageError: if the rank is not positive, or a target matches no linear layer of the model.
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
        """Apply the adapter ``matrices`` to calls inside the context."""
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
    layers: dict[str, torch.nn.Module] = {}
    for path, module in model.named_modules():
        inner = path.rpartition(".")[0] in layers  # the layer inside a RowPermutation
        if isinstance(module, _LINEAR) and not inner and (targets is not None or module is not logits):
            layers[path] = module
    if targets is None:
        return layers
    ends = [f".{target}" for target in targets]
    if wrong := [
        target for target, end in zip(targets, ends, strict=True) if not any(f".{p}".endswith(end) for p in layers)
    ]:
        names = sorted({path.rpartition(".")[2] for path in layers})
        raise UsageError(
            f"{type(model).__name__} has no linear layer {wrong[0]!r} for adapters: accepted are ends of paths, as "
            f"{', '.join(names)}"
        )
    return {path: module for path, module in layers.items() if f".{path}".endswith(tuple(ends))}


def _sizes(model: Any, layers: Mapping[str, torch.nn.Module]) -> dict[str, tuple[int, int]]:
    """Return K and N of the layers that a call of the model runs, measured by a call with fake tensors."""
    sizes: dict[str, tuple[int, int]] = {}

    def note(path: str, module: torch.nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        sizes[path] = (inputs[0].shape[-1], result.shape[-1])

    handles = [module.register_forward_hook(partial(note, path)) for path, module in layers.items()]
    try:
        with tracing(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            model(input_ids=torch.zeros(1, 1, dtype=torch.int64))
    finally:
        for handle in handles:
            handle.remove()
    return sizes


def _names(path: str) -> tuple[str, str]:
    """Return the names of A and B for the layer at ``path``."""
    return f"{path}.lora_A", f"{path}.lora_B"


def no_adapter(form: AdapterForm) -> Matrices:
    """Return all-zero matrices, which leave the model unchanged."""
    zeros: Matrices = {}
    for path, (columns, rows) in form.layers.items():
        shapes = (form.rank, columns), (rows, form.rank)
        zeros |= {name: torch.zeros(shape) for name, shape in zip(_names(path), shapes, strict=True)}
    return zeros


def matrices_for(form: AdapterForm | None, folder: str | os.PathLike[str] | None) -> Matrices:
    """Return the matrices of the PEFT adapter in ``folder``, or of none, for a module with arguments of ``form``.

    Layers that the adapter does not change get zeros.

    Raises:
        UsageError: if ``form`` is None, the folder has no adapter, or the adapter uses options beyond plain LoRA,
            changes layers that the module was not imported for, lacks some, has a larger rank, or has other sizes.
    """
    if form is None:
        raise UsageError("the module takes no adapter: import the model with adapter_rank, or merge it with lora")
    matrices = no_adapter(form)
    if folder is None:
        return matrices
    for path, (first, second, scale) in read_adapter(Path(folder), form.layers).items():
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
        matrices[first_name][:rank] = first
        matrices[second_name][:, :rank] = second.float() * scale
    return matrices


class AdaptedCaller(Caller):
    """A caller that passes the adapter's matrices with each call."""

    adapter: Matrices

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return a callable for the function ``name`` that passes the adapter."""
        function = super().__getitem__(name)
        if name in _WITHOUT:
            return function
        return lambda *arguments, **named: function(*arguments, **named, adapter=self.adapter)

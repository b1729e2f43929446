"""Models and calibration inputs that post-training quantization does not take, or that give useless scales."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from fx_importer.errors import QuantizationWarning, UsageError
from fx_importer.mlir.tensor_elements import missing_values
from fx_importer.quantization.functional_form import functional
from fx_importer.quantization.post_training.calibration import Call
from fx_importer.quantization.qdq import is_quantized, kind_of
from fx_importer.quantization.rule import is_activation

_LIBRARIES = ("quantized_decomposed", "quantized", "torchao", "fx_importer_integer")
"""Namespaces of operators of quantized models."""


def check_float(program: ExportedProgram) -> None:
    """Raise `UsageError` for a model without float32 or values, quantized, or with names that torch.fx does not quote.

    Half-precision parameters are warned of.
    """
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    names = [node.target for node in nodes if getattr(node.target, "namespace", "") in _LIBRARIES]
    if names:
        raise UsageError(
            f"quantize takes a float model, and this one is quantized: it calls {names[0]}. Lower it with "
            "quantized='integer' (--quantized integer), or quantize the model that it came from"
        )
    tensors = {**program.state_dict, **program.constants}
    for name in tensors:
        if not name.isprintable() or '"' in name or "\\" in name:
            raise UsageError(
                f"quantize cannot name {name!r} in the code of torch.fx: rename the module or tensor, without quotes, "
                "backslashes and control characters"
            )
    for name, value in tensors.items():
        if isinstance(value, Tensor) and (missing := missing_values(value)) is not None:
            raise UsageError(f"quantize reads the values of {name!r}, and it {missing}")
    others = {
        name: value.dtype
        for name, value in tensors.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float32
    }
    floats = [node.meta.get("val") for node in nodes]
    dtypes = {str(value.dtype) for value in floats if isinstance(value, Tensor) and value.is_floating_point()}
    if dtypes and not any(map(is_activation, nodes)):
        raise UsageError(
            f"quantize takes float32 models, and this one computes in {', '.join(sorted(dtypes))}: pass model.float(), "
            "and float32 inputs"
        )
    if others:
        name, dtype = next(iter(others.items()))
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        _warn(f"quantize takes float32: '{name}' is {dtype}{more}, and operators on it stay in floating point")


def check_calls(program: ExportedProgram, calls: Sequence[Call]) -> None:
    """Raise `UsageError` for inputs of other sizes or dtypes than ``program`` has, or unwritable; warn of constants."""
    names = list(program.graph_signature.user_inputs)
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    examples = [nodes[name].meta.get("val") if isinstance(name, str) else name for name in names]
    columns: list[list[Tensor]] = [[] for _ in examples]
    for number, (args, kwargs) in enumerate(calls):
        leaves = tree_leaves((tuple(args), dict(kwargs)))
        if len(leaves) != len(examples):
            raise UsageError(
                f"calibration input {number} has {len(leaves)} values, and the model takes {len(examples)}"
            )
        for place, (leaf, example) in enumerate(zip(leaves, examples, strict=True)):
            if isinstance(leaf, Tensor) and isinstance(example, Tensor):
                _check_like(f"calibration input {number}: '{names[place]}'", leaf, example)
                columns[place].append(leaf)
    written = functional(program).graph_signature.user_inputs_to_mutate.values()
    for name, tensors in zip(names, columns, strict=True):
        if name in written and any(_is_expanded(tensor) for tensor in tensors):
            raise UsageError(
                f"calibration: '{name}' is written, but its elements share memory, as those of an expanded tensor do: "
                f"pass a copy, {name}.clone()"
            )
        if tensors and tensors[0].is_floating_point() and name not in written:  # an empty cache is representative
            _check_varies(str(name), tensors)


def _is_expanded(tensor: Tensor) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _check_like(what: str, tensor: Tensor, example: Tensor) -> None:
    sizes = list(zip(tensor.shape, example.shape, strict=False))
    other = [(size, wanted) for size, wanted in sizes if isinstance(wanted, int) and size != wanted]
    if tensor.dim() != example.dim() or other or tensor.dtype != example.dtype:
        shape = tuple(size if isinstance(size, int) else str(size) for size in example.shape)
        raise UsageError(
            f"{what} is {tensor.dtype} of shape {tuple(tensor.shape)}, and the model was exported for {example.dtype} "
            f"of shape {shape}"
        )
    if tensor.numel() == 0:
        raise UsageError(f"{what} has no elements, and scales come from what the model computes for some")


def _check_varies(name: str, tensors: Sequence[Tensor]) -> None:
    value = tensors[0].flatten()[0]
    if sum(tensor.numel() for tensor in tensors) == 1 and value != 0:
        return
    if all(bool((tensor == value).all()) for tensor in tensors):
        _warn(
            f"calibration: all elements of '{name}' are {float(value):g}, and other values will be beyond the range of "
            "its scale: pass representative inputs",
            depth=2,
        )


def check_changed(module: fx.GraphModule, losses: Sequence[str] = ()) -> None:
    """Warn if nothing in ``module``, which `quantize` returns, is quantized, and of ``losses`` of accuracy."""
    for loss in losses:
        _warn(loss)
    if not is_quantized(module.graph):
        targets = {str(node.target) for node in _operators(module) if kind_of(node) is None}
        _warn(
            "quantize changed nothing: no operator of the model has an integer form, or all stay in floating point: "
            f"{', '.join(sorted(targets)[:8]) or 'the model has none'}"
        )


def _operators(module: fx.GraphModule) -> Iterator[fx.Node]:
    return (node for node in module.graph.nodes if node.op == "call_function")


def _warn(message: str, depth: int = 1) -> None:
    """Warn at the line that calls `quantize`, which is ``depth`` functions above the caller."""
    warnings.warn(message, QuantizationWarning, stacklevel=3 + depth)

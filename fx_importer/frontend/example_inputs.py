"""Checks of the example inputs before torch.export."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import keystr, tree_flatten_with_path

from fx_importer.errors import MisspeltOptionWarning, UsageError

_ALMOST_THE_SAME = 0.85
"""The similarity of a misspelt option, as difflib computes it: ``output_typ`` and ``output_type`` have 0.95."""


def forward_of(f: Any) -> Callable[..., Any]:
    """Return a module's ``forward``, or ``f`` itself."""
    return f.forward if isinstance(f, torch.nn.Module) else f


def parameters_of(f: Any) -> list[str]:
    """Return the names of the parameters of ``f``, or an empty list if it has no signature."""
    try:
        return list(inspect.signature(forward_of(f)).parameters)
    except (TypeError, ValueError):
        return []


def check_inputs(f: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: Collection[str]) -> None:
    """Raise `UsageError` unless ``f`` can be called with these inputs.

    ``options`` are the names of lowering options: an unknown keyword may be a misspelt one.
    """
    try:
        signature = inspect.signature(forward_of(f))
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = (
            f"{type(f).__name__}.forward" if isinstance(f, torch.nn.Module) else getattr(f, "__name__", "the function")
        )
        message = f"{name}{signature} cannot be called with these inputs: {error}"
        takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        unknown = [] if takes_any else [key for key in kwargs if key not in signature.parameters]
        for key in unknown:
            close = difflib.get_close_matches(key, [*options, *signature.parameters], n=1)
            message += f". '{key}' is neither an option nor a parameter of the model"
            if key in ("args", "example_inputs"):
                message += ": example inputs are positional, as in lower(model, x, y)"
            elif close:
                message += f"; did you mean '{close[0]}'?"
        raise UsageError(message) from None


def warn_of_misspelt(f: Any, keywords: Collection[str], options: Collection[str]) -> None:
    """Warn of ``keywords`` that resemble an option if ``f`` takes any keyword, and has no parameter of that name."""
    try:
        parameters = inspect.signature(forward_of(f)).parameters
    except (TypeError, ValueError):
        return
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in sorted(set(keywords) - parameters.keys()):
        for option in difflib.get_close_matches(name, options, n=1, cutoff=_ALMOST_THE_SAME):
            warnings.warn(
                f"'{name}' is passed to the model, which takes any keyword. If you meant the option '{option}', "
                f"spell it so; if it is the model's, pass it in kwargs={{'{name}': ...}}, and this warning ends",
                MisspeltOptionWarning,
                stacklevel=3,
            )


def check_quantized(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise `UsageError` listing every input of a quantized dtype, which torch.export does not support."""
    leaves = tree_flatten_with_path((tuple(args), dict(kwargs)))[0]
    inputs = [(f"input {keystr(path)}", leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    if quantized := [(name, leaf) for name, leaf in inputs if leaf.is_quantized]:
        raise quantized_error(quantized)


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name, also of a module with attributes that are named as its methods."""
    return dict((*torch.nn.Module.named_parameters(module), *torch.nn.Module.named_buffers(module)))


def quantized_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights of quantized dtypes, by name."""
    return {name: tensor for name, tensor in state_of(module).items() if tensor.is_quantized}


def quantized_error(tensors: Iterable[tuple[str, torch.Tensor]]) -> UsageError:
    """Return the error about ``tensors`` of quantized dtypes, with their names."""
    listed = ", ".join(f"{name} ({tensor.dtype})" for name, tensor in tensors)
    return UsageError(
        f"torch.export takes no tensors of quantized dtypes: {listed}. "
        "Hold their integers, `int_repr()`, with scale and zero point, and dequantize in the model"
    )


def quantized_state_error(module: torch.nn.Module) -> UsageError | None:
    """Return the error about weights of quantized dtypes; None if there are none."""
    state = quantized_state(module)
    return quantized_error((f"'{name}'", tensor) for name, tensor in state.items()) if state else None


def without_quantized_state(module: torch.nn.Module, export: Callable[[], ExportedProgram]) -> ExportedProgram:
    """Return ``export()``, during which integers stand for weights of quantized dtypes, which torch.export refuses.

    Raises:
        UsageError: listing these weights, if the program reads one.
    """
    state = quantized_state(module)
    if not state:
        return export()
    owners = {name: module.get_submodule(name.rpartition(".")[0]) for name in state}
    try:
        for name, tensor in state.items():
            _replace(owners[name], name.rpartition(".")[2], tensor.int_repr())
        program = export()
    finally:
        for name, tensor in state.items():
            _replace(owners[name], name.rpartition(".")[2], tensor)
    inputs = {spec.arg.name for spec in program.graph_signature.input_specs if spec.target in state}
    if any(node.users for node in program.graph.find_nodes(op="placeholder") if node.name in inputs):
        raise quantized_error((f"'{name}'", tensor) for name, tensor in state.items())
    return program


def _replace(owner: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    if name in owner._buffers:
        owner._buffers[name] = value
    elif isinstance(value, torch.nn.Parameter):
        owner._parameters[name] = value
    else:
        owner._parameters[name] = torch.nn.Parameter(value, requires_grad=False)

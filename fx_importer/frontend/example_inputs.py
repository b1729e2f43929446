"""Checks of the example inputs before torch.export."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
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


def check_quantized(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise `UsageError` listing every tensor of a quantized dtype, which torch.export does not support."""
    inputs = [(f"input {keystr(path)}", leaf) for path, leaf in tree_flatten_with_path((tuple(args), dict(kwargs)))[0]]
    weights = [(f"'{name}'", each) for name, each in (*module.named_parameters(), *module.named_buffers())]
    quantized = [
        f"{name} ({each.dtype})"
        for name, each in weights + inputs
        if isinstance(each, torch.Tensor) and each.is_quantized
    ]
    if quantized:
        raise UsageError(
            f"torch.export takes no tensors of quantized dtypes: {', '.join(quantized)}. Hold their integers, "
            "`int_repr()`, with scale and zero point, and dequantize in the model"
        )

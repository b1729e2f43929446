"""Capture of models whose code computes gradients: forces of energies, residuals of differential equations."""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.export import ExportedProgram
from torch.export._trace import _export
from torch.utils._pytree import tree_map_only

_LOST = "torch.export recorded operators of torch.func without their operands"
_LOSSES = (
    *(_LOST, "fake tensor in the exported program constant"),
    *("object has no attribute 'constant'", "meta conversion to view functorch tensor"),
)


def export_below_autograd(module: torch.nn.Module, args: Any, kwargs: Any, **options: Any) -> ExportedProgram:
    """Export ``module`` with the operators of its forward and backward passes. Raises what torch.export raises."""
    return _export(_with_gradients(module), args, kwargs, pre_dispatch=False, **options)


def loses_gradients(error: Exception) -> bool:
    """Return whether torch.export has recorded operators of autograd or torch.func without their operands."""
    return any(text in str(error) for text in _LOSSES)


def check_gradients(program: ExportedProgram) -> None:
    """Raise RuntimeError if torch.export has recorded a tensor inside of a transform of torch.func as a constant."""
    if any(
        isinstance(constant, torch.Tensor) and is_functorch_wrapped_tensor(constant)
        for constant in program.constants.values()
    ):
        raise RuntimeError(_LOST)


def _with_gradients(module: torch.nn.Module) -> torch.nn.Module:
    """Return ``module`` with gradients enabled in its calls: torch disables them while it records below autograd.

    It is another object with the same members: calls of ``module`` in other threads do not see it.
    """
    shown = object.__new__(type(module))
    vars(shown).update(vars(module))
    forward = vars(module).get("forward") or MethodType(type(module).forward, shown)

    @functools.wraps(forward)
    def with_gradients(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad():
            results = forward(*args, **kwargs)
        return tree_map_only(torch.Tensor, torch.Tensor.detach, results)  # else torch records their gradients too

    vars(shown)["forward"] = with_gradients
    return shown

"""Capture of models whose code computes gradients: forces of energies, residuals of differential equations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export._trace import _export


def export_below_autograd(module: torch.nn.Module, args: Any, kwargs: Any, **options: Any) -> ExportedProgram:
    """Export ``module`` with the operators of its forward and backward passes. Raises what torch.export raises."""
    with _gradients_enabled(module):
        return _export(module, args, kwargs, pre_dispatch=False, **options)


@contextmanager
def _gradients_enabled(module: torch.nn.Module) -> Iterator[None]:
    """Enable gradients in calls of ``module``: torch disables them while it records below autograd."""
    own = vars(module).get("forward")
    module.forward = torch.enable_grad()(module.forward)
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own

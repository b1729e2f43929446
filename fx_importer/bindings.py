"""The one place that imports the MLIR bindings. They ship inside the ``torch-mlir`` wheel, as ``torch_mlir.*``."""

from __future__ import annotations

from torch_mlir import ir, passmanager
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.dialects import func as func_d
from torch_mlir.dialects import torch as torch_d

__all__ = ["func_d", "ir", "new_context", "passmanager", "torch_d"]

# The wheel registers StableHLO's own passes, unlike all others, only when asked. Asking twice does no harm.
_stablehlo.register_stablehlo_passes()


def new_context() -> ir.Context:
    """Return a context in which the torch dialect is loaded and diagnostics arrive in `ir.MLIRError`, not on stderr."""
    context = ir.Context()
    torch_d.register_dialect(context)
    return context

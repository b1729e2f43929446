"""The one place that imports the MLIR bindings. They ship inside the ``torch-mlir`` wheel, as ``torch_mlir.*``."""

from __future__ import annotations

from torch_mlir import ir, passmanager
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.dialects import func as func_d
from torch_mlir.dialects import torch as torch_d

__all__ = ["func_d", "ir", "load_dialects", "new_context", "passmanager", "portable_artifact", "stablehlo_d", "torch_d"]

stablehlo_d = _stablehlo

# The wheel registers StableHLO's own passes, unlike all others, only when asked. Asking twice does no harm.
_stablehlo.register_stablehlo_passes()


def new_context() -> ir.Context:
    """Return a context in which the torch dialect is loaded and diagnostics arrive in `ir.MLIRError`, not on stderr."""
    context = ir.Context()
    torch_d.register_dialect(context)
    return context


def load_dialects(context: ir.Context) -> None:
    """Load what torch is lowered to into ``context``. Takes half a millisecond the first time, and then nothing.

    torch_c, tm_tensor, stablehlo and chlo come in by a pass that depends on them, and in no other way.
    """
    passes = passmanager.PassManager("builtin.module", context)
    passes.add("func.func(convert-torch-to-tmtensor,convert-torch-to-tosa,convert-torch-to-stablehlo)")
    passes.run(ir.Module.parse("module {}", context).operation)


def portable_artifact(module: ir.Module) -> bytes:
    """Return StableHLO as bytecode that releases of StableHLO from the last twelve weeks read, and all later ones.

    Raises:
        ValueError: if the module holds anything that is not StableHLO's, ``dense_resource`` included.
    """
    requirement = _stablehlo.StablehloCompatibilityRequirement.WEEK_12
    version = _stablehlo.get_version_from_compatibility_requirement(requirement)
    return _stablehlo.serialize_portable_artifact(module, version)

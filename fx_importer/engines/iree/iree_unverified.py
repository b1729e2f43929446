"""Programs for which IREE's code has computed wrong numbers on a device, without a cause that is known."""

from __future__ import annotations

import re
import warnings

from fx_importer.diagnostics.mlir_diagnostics import read_location, user_frame
from fx_importer.engines.iree.iree_targets import IreeTarget
from fx_importer.errors import UnverifiedCodeWarning
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations

_WINDOWS = re.compile(r"(?:^|[._])(?:conv(?!ert)|max_pool|pooling_\w*max|reduce_window)")
"""Operations on windows: convolutions and max pooling, in linalg, StableHLO, TOSA and the torch dialect."""


def warn_of_unverified_code(module: ir.Module, target: IreeTarget) -> None:
    """Issue an `UnverifiedCodeWarning` for convolutions and max pooling of 16-bit floats in code for CUDA.

    IREE 3.13's code for ResNet-50 in bfloat16 computed wrong numbers on an H200. A U-Net was right there, with
    convolutions of 3x3 and stride 1, so strides, 7x7 kernels, 7x7 images or max pooling may be the cause; which is not
    known. float16 takes the same tensor-core instructions, and did not run.
    """
    if target.driver != "cuda":
        return
    op = next((op for op in operations(module.operation) if _WINDOWS.search(op.name) and _has_16_bit_floats(op)), None)
    if op is None:
        return
    frames, _ = read_location(op.location)
    frame = user_frame(frames)
    where = f"{frame[0]}:{frame[1]}" if frame else op.name
    warnings.warn(
        f"the code for '{target.name}' is unverified: the program has convolutions or max pooling of 16-bit floats "
        f"(first at {where}), and IREE 3.13's code for ResNet-50 in bfloat16 computed wrong numbers on an H200. Verify "
        f"it on the device: Lowered.verify(..., backends=[IreeBackend(target='{target.name}')]); code for float32 was "
        "right there",
        UnverifiedCodeWarning,
        stacklevel=2,
    )


def _has_16_bit_floats(op: ir.Operation) -> bool:
    return any("f16" in str(value.type) for value in (*op.operands, *op.results))

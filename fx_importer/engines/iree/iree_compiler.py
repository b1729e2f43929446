"""Compilation of modules by IREE, for processors and GPUs; programs for which IREE has computed wrong numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path

from fx_importer.diagnostics.mlir_diagnostics import read_location, user_frame
from fx_importer.diagnostics.trace import Trace
from fx_importer.engines.engine_pipeline import run_engine_pipeline
from fx_importer.engines.iree.engine import IREE_ENGINE
from fx_importer.engines.iree.iree_parameters import with_parameters
from fx_importer.engines.iree.iree_pipeline import iree_pipeline
from fx_importer.engines.iree.iree_targets import IreeTarget
from fx_importer.errors import CrashedError, UnverifiedCodeWarning, UsageError
from fx_importer.mlir.bindings import ir, write_bytecode
from fx_importer.mlir.functions import dialects_of, functions_of
from fx_importer.mlir.walk import operations
from fx_importer.process.one_shot import run_command
from fx_importer.process.scratch import full_disk_errors
from fx_importer.rewrites.linalg.integer_convolutions import has_integer_products

KEEP_FLOAT64 = "--iree-input-demote-f64-to-f32=false"  # the default demotes, and changes the type of the function
_PACK_OPERANDS = "--iree-opt-data-tiling"
"""Operands of products are stored in tiles, which instructions for int8 read. Products of a few rows of float32 are
slower so, so it is for programs with products of int8 only."""
_UNKNOWN = re.compile("error: (Unknown [A-Z]\\w+ target|missing GPU target)")
_INPUT_TYPES = {"stablehlo": "stablehlo", "chlo": "stablehlo", "torch": "torch", "tosa": "tosa"}
"""The input type by a dialect in the module. Modules without these dialects have the input type ``none``."""


def input_type_of(module: ir.Module) -> str:
    """Return IREE's name of the dialect of ``module``."""
    there = dialects_of(module)
    return next((kind for dialect, kind in _INPUT_TYPES.items() if dialect in there), "none")


def prepare(module: ir.Module, kind: str, target: IreeTarget) -> None:
    """Run the passes of `iree_pipeline` on ``module``, of the input type ``kind``.

    Warns (`UnverifiedCodeWarning`) of programs for which IREE's code for the target has computed wrong numbers.

    Raises:
        UsageError: for a sort of linalg, which IREE runs wrongly.
    """
    warn_of_unverified_code(module, target)
    run_engine_pipeline(iree_pipeline(kind, target), module)


def compile_to(
    output: Path,
    module: ir.Module,
    kind: str,
    target: IreeTarget,
    parameters: Collection[str] = (),
    flags: Sequence[str] = (),
) -> None:
    """Compile ``module`` to the file ``output``. Resources named in ``parameters`` are read from the caller.

    Raises:
        UsageError: for an architecture that IREE does not know.
        StageFailed: if IREE cannot compile it, with its errors.
    """
    source = output.with_suffix(".mlir")
    with full_disk_errors():
        if parameters:
            source.write_text(with_parameters(module, {key: key for key in parameters}))
        else:
            write_bytecode(module.operation, source)
    tools = IREE_ENGINE.imported("iree.compiler.tools.binaries")
    floats = [] if target.narrow_integers and kind == "torch" and not _has_float64(module) else [KEEP_FLOAT64]
    if kind == "none" and target.is_cpu and not target.microcontroller and has_integer_products(module):
        flags = [_PACK_OPERANDS, *flags]
    chosen = [f"--iree-input-type={kind}", "--mlir-print-op-on-diagnostic=false", *target.flags, *floats, *flags]
    with Trace().stage("iree-compile"):
        _run([tools.find_tool("iree-compile"), source, *chosen, "-o", output], target)
    source.unlink()


def _has_float64(module: ir.Module) -> bool:
    """Return whether ``module``, in the torch dialect, has float64 tensors, or functions with a float.

    Others have float64 in PyTorch's scalars only, as the epsilon of a normalization. These become float32, as PyTorch
    casts them to a tensor's dtype, for devices that need not have float64.
    """
    results = {str(result.type) for op in operations(module.operation) for result in op.results}
    functions = {str(function.type) for function in functions_of(module).values()}
    return any("f64" in result for result in results | functions) or any("!torch.float" in type_ for type_ in functions)


def _run(command: Sequence[str | Path], target: IreeTarget) -> None:
    try:
        run_command("iree-compile", command)
    except CrashedError as error:
        if _UNKNOWN.search(error.output):
            raise UsageError(f"IREE does not know the architecture of the target '{target.name}'") from None
        errors = [line.partition("error: ")[2] for line in error.output.splitlines() if "error: " in line]
        if error.signal or not errors:
            raise
        raise ValueError("; ".join(dict.fromkeys(errors))) from error


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

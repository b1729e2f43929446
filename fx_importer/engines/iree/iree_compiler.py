"""Compilation of modules by IREE, for processors and GPUs."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from fx_importer.diagnostics.trace import Trace
from fx_importer.engines.function_extraction import inline_calls
from fx_importer.engines.iree.engine import IREE_ENGINE
from fx_importer.engines.iree.iree_parameters import with_parameters
from fx_importer.engines.iree.iree_targets import HOST, IreeTarget
from fx_importer.errors import CrashedError, UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import dialects_of, functions_of
from fx_importer.mlir.walk import operations
from fx_importer.process.one_shot import run_command
from fx_importer.rewrites.iree.constants import spell_small_constants
from fx_importer.rewrites.iree.half_precision_matmuls import widen_products
from fx_importer.rewrites.iree.narrow_integers import narrow_constants
from fx_importer.rewrites.iree.softmax import split_softmaxes
from fx_importer.rewrites.iree.sorts import keep_order, refuse_sorts
from fx_importer.rewrites.linalg.channels_last import use_channels_last
from fx_importer.rewrites.linalg.exact_floats import use_float_kernels
from fx_importer.rewrites.linalg.insertion_bounds import clamp_insertions
from fx_importer.rewrites.linalg.integer_convolutions import has_integer_products, is_integer_product
from fx_importer.rewrites.stablehlo.convolution_layouts import use_layouts_of_convolutions

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
    """Rewrite ``module``, of the input type ``kind``, to what IREE compiles best for ``target``.

    Raises:
        UsageError: for a sort of linalg, which IREE runs wrongly.
    """
    if target.narrow_integers:
        narrow_constants(module)
    if kind == "torch":
        inline_calls(module)  # IREE 3.13 does not resolve calls in this dialect
    elif kind == "stablehlo":
        use_layouts_of_convolutions(module)
        keep_order(module)
    elif kind == "none":
        refuse_sorts(module)
        if target.name == HOST:
            use_float_kernels(module, is_integer_product)
            split_softmaxes(module)
            widen_products(module)
            spell_small_constants(module)
        use_channels_last(module, integer_products=target.name == HOST)
        clamp_insertions(module)


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
    if parameters:
        source.write_text(with_parameters(module, {key: key for key in parameters}))
    else:
        module.operation.write_bytecode(str(source))
    tools = IREE_ENGINE.imported("iree.compiler.tools.binaries")
    floats = [] if target.narrow_integers and kind == "torch" and not _has_float64(module) else [KEEP_FLOAT64]
    if kind == "none" and target.name == HOST and has_integer_products(module):
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
    results = {str(each.type) for op in operations(module.operation) for each in op.results}
    functions = {str(each.type) for each in functions_of(module).values()}
    return any("f64" in each for each in results | functions) or any("!torch.float" in each for each in functions)


def _run(command: Sequence[str | Path], target: IreeTarget) -> None:
    try:
        run_command("iree-compile", command)
    except CrashedError as error:
        if _UNKNOWN.search(error.output):
            raise UsageError(f"IREE does not know the architecture of the target '{target.name}'") from None
        found = [line.partition("error: ")[2] for line in error.output.splitlines() if "error: " in line]
        if error.signal or not found:
            raise
        raise ValueError("; ".join(dict.fromkeys(found))) from error

"""Pipelines from linalg on tensors, TOSA or StableHLO to native code that allocates no memory, for any processor.

`buffers` ends in loops over memrefs, which C source is written from; `machine_code` goes on to the LLVM dialect.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fx_importer.pipelines.llvm import FUSE, LOOPS, PADS, SCALARS, SUPPORTED_NUMBERS, TO_LLVM
from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.stage import Pass, Stage, Step, on_functions
from fx_importer.pipelines.to_linalg import IN_PLACE, TO_LINALG
from fx_importer.rewrites import (
    call_cblas,
    call_cmsis_nn,
    channels_last,
    divide_without_traps,
    expand_scalars,
    insert_status_checks,
    interchange_loops,
    keep_narrow_results,
    launch_on_threads,
    localize_variables,
    outline_blas_calls,
    outline_kernels,
    pack_weights,
    pass_addresses,
    plan_memory,
    read_initial_values,
    reassociate_sums,
    refuse_unlowered,
    relax_layout_casts,
    replace_functions,
    return_by_destination,
    return_status,
    separate_empty_tensors,
    separate_fills,
    set_entry_point,
    set_processor,
    tile_integer_sums,
    tile_sums,
    transpose_operands,
    vectorize_sums,
)
from fx_importer.rewrites.llvm.processor import Processor


def buffers(
    dialects: Collection[str] = (),
    *,
    function: str = "main",
    processor: Processor | None = None,
    sgemm: str | None = None,
) -> Pipeline:
    """Return the pipeline to loops over memrefs, for a ``processor`` that has no vectors by default.

    ``sgemm`` is the name of CBLAS's matmul of float32, which computes large matmuls; without one, loops do.

    The entry point ``function`` takes the arguments of the model, the weights as one block of bytes, a memref for each
    result that is not new state, and the arena; it returns nothing. Its ``cf.assert`` have the status to return.
    """
    fields = processor or Processor()
    options = {
        "lanes": fields.lanes,
        "registers": fields.registers,
        "fma": fields.fma,
        "index_bits": fields.index_bits,
        "threads": fields.threads,
    }
    to_linalg = (stage for dialect, stage in TO_LINALG.items() if dialect in dialects)
    entry = Stage(
        "entry",
        "All is linalg. One function is public, and the module is for one processor.",
        (refuse_unlowered, set_entry_point(function=function), set_processor(**options)),
    )
    fuse, rows = (
        (FUSE, ())
        if fields.lanes
        else (Stage(FUSE.name, FUSE.description, (keep_narrow_results, *FUSE.passes)), (_ROWS,))
    )
    layouts, bufferize = _LAYOUTS, _BUFFERIZE
    if sgemm is not None:
        layouts = replace(layouts, passes=(*layouts.passes, outline_blas_calls))
        bufferize = replace(bufferize, passes=_before(return_by_destination, bufferize.passes, call_cblas(sgemm=sgemm)))
    pads = PADS if fields.lanes else replace(PADS, passes=PADS.passes[1:])  # whole fills are less code
    before = (*to_linalg, IN_PLACE, entry, layouts, fuse, _CONSTANTS, *rows, pads)
    return Pipeline("native", (*before, bufferize, _LOOPS, _CHECKS))


def cmsis_nn_layers(library: str) -> Pipeline:
    """Return the pipeline after which layers of int8 in TOSA call CMSIS-NN, in functions that begin with ``library``.

    Other operations stay as they are.
    """
    calls = Stage("cmsis-nn", "Layers of int8 call CMSIS-NN, on buffers.", (call_cmsis_nn(library=library),))
    return Pipeline("cmsis-nn", (calls,))


def _before(step: Step, steps: Sequence[Step], new: Step) -> tuple[Step, ...]:
    position = steps.index(step)
    return (*steps[:position], new, *steps[position:])


_LAYOUTS = Stage(
    "layouts",
    "Convolutions have channels last.",
    (read_initial_values, channels_last(elements=("f64", "f32", "bf16", "f16"))),
)
_CONSTANTS = Stage(
    "constants",
    "Large weights are one block of bytes, an argument. Contractions read along rows.",
    (pack_weights, transpose_operands, interchange_loops, separate_fills, separate_empty_tensors),
)
_ROWS = Stage(
    "rows",
    "Without vectors: sums of integers are computed, and rescaled, a row at a time.",
    (tile_integer_sums, on_functions("canonicalize", "cse"), separate_fills, separate_empty_tensors),
)
_BUFFERIZE = Stage(
    "bufferize",
    "Tensors are buffers in one block of memory, the arena, which the caller owns, as it owns results.",
    (
        Pass("eliminate-empty-tensors"),
        Pass("empty-tensor-to-alloc-tensor"),
        on_functions("cse"),
        Pass(
            "one-shot-bufferize",
            {
                "bufferize-function-boundaries": True,
                "function-boundary-type-conversion": "identity-layout-map",
            },
        ),
        Pass("drop-equivalent-buffer-results"),
        on_functions("cse", "canonicalize"),
        Pass("refback-mlprogram-bufferize"),
        Pass("convert-bufferization-to-memref"),
        relax_layout_casts,
        return_by_destination,
        Pass("resolve-shaped-type-result-dims"),
        on_functions("canonicalize", "cse"),
        localize_variables,
        plan_memory,
    ),
)
_VERIFICATION, _, *_SCALAR_LOOPS = LOOPS.passes
_LOOPS = Stage(
    LOOPS.name,
    f"{LOOPS.description} On processors with vectors, matmuls and convolutions compute in vector registers.",
    (_VERIFICATION, tile_sums(), *_SCALAR_LOOPS),
)
_CHECKS = Stage("checks", "Indices and divisors are checked; what fails has a status.", (insert_status_checks,))


def machine_code(processor: Processor) -> Pipeline:
    """Return the pipeline from the result of `buffers` to the LLVM dialect, for ``processor``."""
    left_out = () if processor.threads else (launch_on_threads,)
    first, *rest = (_with_index(step, processor.index_bits) for step in TO_LLVM.passes if step not in left_out)
    blocks = Stage("llvm", TO_LLVM.description, (first, return_status, *rest))
    return Pipeline("native-code", (_KERNELS, SCALARS, blocks))


def scalars_of_c() -> Pipeline:
    """Return the pipeline from the result of `buffers` to scalars that C has, for C source."""
    return Pipeline("c-source", (_C_SCALARS,))


_C_SCALARS = Stage(
    "scalars",
    "Complex numbers are pairs; floats of 16 and 8 bits are loaded and stored, and compute in f32.",
    (
        *SUPPORTED_NUMBERS,
        Pass("int-range-optimizations"),  # checks of indices of loops with static bounds hold
        on_functions("canonicalize", "cse", "loop-invariant-code-motion"),
    ),
)


def _with_index(step: Step, bits: int) -> Step:
    if bits == 64 or not isinstance(step, Pass) or step.name not in _TAKE_BITS:
        return step
    return Pass(step.name, {**step.options, "index-bitwidth": bits})


_TAKE_BITS = {
    *(f"convert-{name}-to-llvm" for name in ("index", "arith", "func", "cf", "ub")),
    "finalize-memref-to-llvm",
}
"""Passes that take the bits of an index."""
_KERNELS = Stage(
    "kernels",
    "Loops are functions, in vectors of the processor's size.",
    (
        *(pass_addresses, divide_without_traps, expand_scalars, vectorize_sums),
        *(outline_kernels(small_trip_count=0), reassociate_sums, replace_functions),
    ),
)

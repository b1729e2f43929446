"""Pipeline from linalg on tensors, TOSA or StableHLO to the LLVM dialect, for the host CPU.

Its rewrites choose libraries, vectors and threads for the processor and the process that they run in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.stage import Pass, Stage, on_functions
from fx_importer.pipelines.to_linalg import IN_PLACE, TO_LINALG
from fx_importer.rewrites import (
    bind_library,
    block_loops,
    call_by_address,
    channels_last,
    collapse_loops,
    declare_operator_stubs,
    define_functions,
    divide_without_traps,
    expand_scalars,
    expand_small_floats,
    fill_pad_borders,
    hide_functions,
    hoist_weights,
    insert_checks,
    int8_matmuls_to_f32,
    interchange_loops,
    keep_from_recomputation,
    launch_on_threads,
    move_bits,
    outline_kernels,
    outline_library_calls,
    pass_destinations,
    place_results,
    plan_arena,
    plan_slots,
    read_initial_values,
    reassociate_sums,
    relax_layout_casts,
    remove_fusion_marks,
    replace_functions,
    separate_empty_tensors,
    separate_fills,
    set_entry_point,
    simplify_size_checks,
    skip_optimization,
    tile_sums,
    vectorize_sums,
)
from fx_importer.rewrites.llvm.kernel_outlining import SMALL_TRIP_COUNT
from fx_importer.rewrites.llvm.small_floats import FORMATS as SMALL_FLOATS


def llvm(
    dialects: Collection[str] = (),
    *,
    function: str = "main",
    elements: Sequence[str] = ("f32", "f64"),
    small_trip_count: int = SMALL_TRIP_COUNT,
) -> Pipeline:
    """Return the pipeline for modules with ``dialects``, such as ``stablehlo``, or of linalg on tensors.

    Args:
        dialects: dialects of `TO_LINALG` are lowered to linalg first.
        function: the function to call. The others become private.
        elements: element types of convolutions that compute with channels last.
        small_trip_count: loops of at most so many iterations are optimized for size.
    """
    to_linalg = (stage for dialect, stage in TO_LINALG.items() if dialect in dialects)
    entry = Stage(
        ENTRY,
        "One function is public. Stubs of operators are functions of C.",
        (set_entry_point(function=function), declare_operator_stubs),
    )
    library = Stage(
        "library",
        "Convolutions have channels last. Matmuls and convolutions that a library computes are functions.",
        (read_initial_values, channels_last(elements=tuple(elements)), outline_library_calls),
    )
    kernels = Stage(
        "kernels",
        "Loops are functions, with checks of indices and divisors. Functions of math that LLVM vectorizes are calls.",
        (
            *(insert_checks, divide_without_traps, expand_scalars, vectorize_sums),
            *(
                outline_kernels(small_trip_count=small_trip_count),
                skip_optimization,
                reassociate_sums,
                replace_functions,
            ),
        ),
    )
    before = (INTEGERS, *to_linalg, IN_PLACE, entry, library)
    return Pipeline("llvm", (*before, FUSE, CONSTANTS, PADS, BUFFERIZE, LOOPS, kernels, SCALARS, TO_LLVM))


ENTRY = "entry"
"""The name of the stage after which functions have the types that callers see."""
INTEGERS = Stage("integers", "Matmuls and convolutions of int8 are exact sums of float32.", (int8_matmuls_to_f32,))
FUSE = Stage(
    "fuse",
    "There is one function. Chains of elementwise ops are fused, and all structured ops are linalg.generic.",
    (
        keep_from_recomputation,
        Pass("inline"),
        Pass("symbol-dce"),
        on_functions("refback-generalize-tensor-concat", "canonicalize"),
        Pass("convert-elementwise-to-linalg"),  # arith and math on whole tensors, which rules of users may emit
        # Runs before generalization: ops fused into a matmul would be recomputed for each output column.
        Pass("linalg-fuse-elementwise-ops"),
        on_functions("linalg-generalize-named-ops", "canonicalize", "cse"),
        remove_fusion_marks,
    ),
)
CONSTANTS = Stage(
    "constants",
    "Large weights are an argument. Contractions read along rows.",
    (hoist_weights, interchange_loops, separate_fills, separate_empty_tensors),
)
PADS = Stage(
    "pads",
    "Tensors are computed inside the padded ones, whose borders are filled.",
    # After CSE, which would merge the borders of two pads: these were copied for the second.
    (
        fill_pad_borders,
        on_functions(
            *("refback-generalize-tensor-pad", "linalg-generalize-named-ops", "resolve-shaped-type-result-dims")
        ),
    ),
)
BUFFERIZE = Stage(
    "bufferize",
    "Tensors are buffers. The caller owns results, arguments are never written to, temporaries are freed.",
    (
        Pass("eliminate-empty-tensors"),
        Pass("empty-tensor-to-alloc-tensor"),  # CSE would merge empty tensors
        on_functions("cse"),  # a body reads and writes one slice of a value that a loop passes on
        Pass(
            "one-shot-bufferize",
            {
                "bufferize-function-boundaries": True,
                "function-boundary-type-conversion": "identity-layout-map",
            },
        ),
        Pass("drop-equivalent-buffer-results"),  # functions of kernels return the buffer that they write
        on_functions("cse", "canonicalize"),  # copies of a slice to itself are no-ops
        Pass("refback-mlprogram-bufferize"),
        Pass("buffer-deallocation-pipeline"),
        on_functions("optimize-allocation-liveness"),
        Pass("convert-bufferization-to-memref"),
        *(relax_layout_casts, bind_library, pass_destinations),
        *(plan_arena, plan_slots, place_results, call_by_address),
    ),
)
LOOPS = Stage(
    "loops",
    "Structured ops are loops over scalars, depthwise convolutions over vectors. Sizes and bounds that are not static "
    "are asserted at run time.",
    (
        Pass("generate-runtime-verification"),
        tile_sums(depthwise_only=True),  # a library computes other large sums
        on_functions("refback-munge-memref-copy"),  # a copy of strided memory would call a runtime library
        collapse_loops,
        block_loops,
        on_functions("convert-linalg-to-parallel-loops", "cse"),
        simplify_size_checks,
        on_functions("canonicalize", "cse", "loop-invariant-code-motion"),
    ),
)
SUPPORTED_NUMBERS = (
    Pass("convert-complex-to-standard"),
    Pass("arith-emulate-unsupported-floats", {"source-types": ("bf16", "f16", *SMALL_FLOATS), "target-type": "f32"}),
    expand_small_floats,
    Pass("math-extend-to-supported-types"),
)
"""The passes that compute complex numbers as pairs, and floats of 16 and 8 bits in f32."""
SCALARS = Stage(
    "scalars",
    "Arithmetic is legal for LLVM and the C library: f16 and bf16 compute in f32, complex numbers as pairs.",
    (
        Pass("scf-parallel-for-to-nested-fors"),
        *SUPPORTED_NUMBERS,
        on_functions(
            Pass("math-expand-ops", {"ops": ("rsqrt",)}),  # the only function that libm lacks
            Pass(
                "arith-expand", {"include-bf16": True, "include-f8e8m0": True}
            ),  # not all CPUs have an instruction for bf16
        ),
        Pass("convert-math-to-funcs"),
        Pass("convert-math-to-libm"),
        define_functions,
    ),
)
TO_LLVM = Stage(
    "llvm",
    "All operations are in the LLVM dialect.",
    (
        Pass("convert-scf-to-cf"),
        hide_functions,
        Pass("convert-vector-to-llvm"),
        Pass("expand-strided-metadata"),
        Pass("lower-affine"),
        Pass("memref-expand"),
        Pass("finalize-memref-to-llvm", {"use-aligned-alloc": True}),
        # Functions that libm lacks: bit counts, roundings. The approximate log1p would be log(1 + x).
        Pass("convert-math-to-llvm", {"approximate-log1p": False}),
        Pass("convert-complex-to-llvm"),
        Pass("convert-index-to-llvm"),
        Pass("convert-arith-to-llvm"),
        Pass("convert-func-to-llvm"),
        Pass("convert-cf-to-llvm"),
        Pass("convert-ub-to-llvm"),
        Pass("canonicalize"),
        Pass("cse"),
        Pass("reconcile-unrealized-casts"),
        *(move_bits, launch_on_threads),
    ),
)

LLVM = llvm()
"""The pipeline for linalg on tensors, whose entry point is ``main``."""

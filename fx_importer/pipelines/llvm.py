"""Pipeline from linalg on tensors to the LLVM dialect, for the host CPU."""

from __future__ import annotations

from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.stage import Pass, Stage, on_functions
from fx_importer.rewrites import collapse_loops

LLVM = Pipeline(
    "llvm",
    (
        Stage(
            "fuse",
            "There is one function. Chains of elementwise ops are fused, and all structured ops are linalg.generic.",
            (
                Pass("inline"),
                Pass("symbol-dce"),
                on_functions("refback-generalize-tensor-pad", "refback-generalize-tensor-concat", "canonicalize"),
                Pass("convert-elementwise-to-linalg"),  # arith and math on whole tensors, which rules of users may emit
                # Runs before generalization: ops fused into a matmul would be recomputed for each output column.
                Pass("linalg-fuse-elementwise-ops"),
                on_functions("linalg-generalize-named-ops", "canonicalize", "cse"),
            ),
        ),
        Stage(
            "bufferize",
            "Tensors are buffers. The caller owns results, arguments are never written to, temporaries are freed.",
            (
                Pass("eliminate-empty-tensors"),
                Pass("empty-tensor-to-alloc-tensor"),  # CSE would merge empty tensors
                on_functions("cse"),  # a body reads and writes one slice of an iter_arg
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
            ),
        ),
        Stage(
            "loops",
            "Structured ops are loops over scalars. Sizes and bounds that are not static are asserted at run time.",
            (
                Pass("generate-runtime-verification"),
                on_functions("refback-munge-memref-copy"),  # a copy of strided memory would call a runtime library
                collapse_loops,
                on_functions(
                    "convert-linalg-to-parallel-loops",
                    "canonicalize",
                    "cse",
                    "loop-invariant-code-motion",
                ),
            ),
        ),
        Stage(
            "scalars",
            "Arithmetic is legal for LLVM and the C library: f16 and bf16 compute in f32, complex numbers as pairs.",
            (
                Pass("scf-parallel-for-to-nested-fors"),
                Pass("convert-complex-to-standard"),
                Pass("arith-emulate-unsupported-floats", {"source-types": ("bf16", "f16"), "target-type": "f32"}),
                Pass("math-extend-to-supported-types"),
                on_functions(
                    Pass("math-expand-ops", {"ops": ("rsqrt",)}),  # the only function that libm lacks
                    Pass("arith-expand", {"include-bf16": True}),  # not all CPUs have an instruction for bf16
                ),
                Pass("convert-math-to-funcs"),
                Pass("convert-math-to-libm"),
            ),
        ),
        Stage(
            "llvm",
            "All operations are in the LLVM dialect.",
            (
                Pass("convert-scf-to-cf"),
                Pass("convert-vector-to-llvm"),
                Pass("expand-strided-metadata"),
                Pass("lower-affine"),
                Pass("memref-expand"),
                # Functions that libm lacks: bit counts, roundings. The approximate log1p would be log(1 + x).
                Pass("convert-math-to-llvm", {"approximate-log1p": False}),
                Pass("convert-complex-to-llvm"),
                Pass("convert-index-to-llvm"),
                Pass("convert-arith-to-llvm"),
                Pass("convert-func-to-llvm"),
                Pass("finalize-memref-to-llvm", {"use-aligned-alloc": True}),
                Pass("convert-cf-to-llvm"),
                Pass("convert-ub-to-llvm"),
                Pass("canonicalize"),
                Pass("cse"),
                Pass("reconcile-unrealized-casts"),
            ),
        ),
    ),
)
"""Run by `engines.jit.jit_backend`, with rewrites between the stages."""

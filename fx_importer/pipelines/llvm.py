"""Pipeline from linalg on tensors to the LLVM dialect, for the host CPU."""

from __future__ import annotations

from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.stage import Pass, Stage, on_functions

LLVM = Pipeline(
    "llvm",
    (
        Stage(
            "fuse",
            "One function; chains of elementwise ops are one op; every structured op is a linalg.generic.",
            (
                Pass("inline"),
                Pass("symbol-dce"),
                on_functions("refback-generalize-tensor-pad", "refback-generalize-tensor-concat", "canonicalize"),
                Pass("convert-elementwise-to-linalg"),  # arith and math on whole tensors, which rules of users may emit
                # Before named ops are generalised: what is fused into a matmul is computed once per output column.
                Pass("linalg-fuse-elementwise-ops"),
                on_functions("linalg-generalize-named-ops", "canonicalize", "cse"),
            ),
        ),
        Stage(
            "bufferize",
            "Tensors are buffers. Results belong to the caller, arguments are never written, temporaries are freed.",
            (
                Pass("eliminate-empty-tensors"),
                Pass(
                    "one-shot-bufferize",
                    {
                        "allow-return-allocs-from-loops": True,  # a loop may carry a new tensor in each iteration
                        "bufferize-function-boundaries": True,
                        "function-boundary-type-conversion": "identity-layout-map",
                    },
                ),
                on_functions("canonicalize"),
                Pass("refback-mlprogram-bufferize"),
                Pass("buffer-deallocation-pipeline"),
                on_functions("optimize-allocation-liveness"),
                Pass("convert-bufferization-to-memref"),
            ),
        ),
        Stage(
            "loops",
            "Structured ops are loops over scalars. What is not certain before the run is asserted: sizes, and bounds.",
            (
                Pass("generate-runtime-verification"),
                on_functions(
                    "refback-munge-memref-copy",  # a copy of strided memory would call a runtime library
                    "convert-linalg-to-loops",
                    "canonicalize",
                    "cse",
                    "loop-invariant-code-motion",
                ),
            ),
        ),
        Stage(
            "scalars",
            "Arithmetic is what LLVM and the C library have: f16 and bf16 compute in f32, complex numbers in pairs.",
            (
                Pass("convert-complex-to-standard"),
                Pass("arith-emulate-unsupported-floats", {"source-types": ("bf16", "f16"), "target-type": "f32"}),
                Pass("math-extend-to-supported-types"),
                on_functions(
                    Pass("math-expand-ops", {"ops": ("rsqrt",)}),  # the one function that libm does not have
                    Pass("arith-expand", {"include-bf16": True}),  # not every CPU has an instruction for it
                ),
                Pass("convert-math-to-funcs"),
                Pass("convert-math-to-libm"),
            ),
        ),
        Stage(
            "llvm",
            "Nothing but the LLVM dialect.",
            (
                Pass("convert-scf-to-cf"),
                Pass("expand-strided-metadata"),
                Pass("lower-affine"),
                Pass("memref-expand"),
                # What libm does not cover: bit counts, roundings. Its own log1p would be log(1 + x).
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
"""Run by `execution.jit`, with rewrites between the stages."""

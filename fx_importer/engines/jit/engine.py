"""The record of the JIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fx_importer.engines.engine import BackendOptions, Engine, LanguageModels
from fx_importer.output_types import OutputType

if TYPE_CHECKING:
    from fx_importer.calls.backend import Backend
    from fx_importer.mlir.bindings import ir
    from fx_importer.pipelines import Pipeline


def _create(options: BackendOptions) -> Backend:
    from fx_importer.engines.jit.jit_backend import JitBackend

    return JitBackend(stubs=options.stubs, cache=options.cache)


def _optimized() -> Backend:
    from fx_importer.engines.jit.jit_backend import JitBackend

    return JitBackend(optimization=3)


def _load_on_mesh(module: ir.Module, name: str) -> Any:
    from fx_importer.engines.jit.ranks_in_process import load_in_process

    return load_in_process(module, name)


def _pipeline(output_type: OutputType) -> Pipeline:
    from fx_importer.engines.jit.pipeline import pipeline_for

    return pipeline_for(output_type)


JIT_ENGINE = Engine(
    name="jit",
    create=_create,
    pipeline=_pipeline,
    accepts=(OutputType.LINALG_ON_TENSORS, OutputType.STABLEHLO, OutputType.TOSA),
    default_for=(OutputType.LINALG_ON_TENSORS,),
    runs_stubs=True,
    benchmarked=(OutputType.LINALG_ON_TENSORS,),
    variants={"jit at level 3": _optimized},
    language_models=LanguageModels(sum_lanes=1, fuses_sums=True),
    load_on_mesh=_load_on_mesh,
)
"""MLIR's ExecutionEngine: LLVM code for the CPU of this machine, without other packages."""

"""The record of IREE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fx_importer.engines.engine import AheadOfTime, BackendOptions, Engine, LanguageModels, WeightFiles
from fx_importer.output_types import OutputType

if TYPE_CHECKING:
    from pathlib import Path

    from fx_importer.calls.backend import Backend
    from fx_importer.engines.compiled_program import CompiledProgram
    from fx_importer.mlir.bindings import ir
    from fx_importer.pipelines import Pipeline


def _pipeline(output_type: OutputType) -> Pipeline:
    from fx_importer.engines.iree.iree_pipeline import pipeline_for_host

    return pipeline_for_host(output_type)


def _create(_: BackendOptions) -> Backend:
    from fx_importer.engines.iree.iree_backend import IreeBackend

    return IreeBackend()


def _compile(module: ir.Module, target: str, parameters: Mapping[str, str], kind: str) -> CompiledProgram:
    from fx_importer.engines.iree.iree_programs import compile_program

    return compile_program(module, target, parameters, kind)


def _read_archive(path: Path) -> Mapping[str, tuple[int, int]]:
    from fx_importer.engines.iree.iree_parameters import read_archive

    return read_archive(path)


def _write_archive(tensors: Mapping[str, Any], path: Path) -> None:
    from fx_importer.engines.iree.iree_parameters import write_archive

    write_archive(tensors, path)


VMFB, STATIC, C_MODULE = "vmfb", "static", "c"
SUFFIXES = {VMFB: ".vmfb", STATIC: ".vmfb", C_MODULE: ".h"}
"""The suffix of a compiled program by kind: bytecode, bytecode with an object file of kernels, a C module with it."""

IREE_ENGINE = Engine(
    name="iree",
    create=_create,
    accepts=(OutputType.LINALG_ON_TENSORS, OutputType.STABLEHLO, OutputType.TORCH, OutputType.TOSA),
    pipeline=_pipeline,
    extra="iree",
    packages=("iree.compiler", "iree.runtime"),
    benchmarked=(OutputType.LINALG_ON_TENSORS, OutputType.STABLEHLO, OutputType.TORCH),
    language_models=LanguageModels(sum_lanes=32, fuses_sums=True),  # it makes vectors of lanes
    ahead_of_time=AheadOfTime(SUFFIXES, _compile),
    weight_files=WeightFiles(".irpa", "an IREE parameter archive", _read_archive, _write_archive),
)
"""IREE's compiler and runtime: code for processors and GPUs."""

"""The record of XLA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fx_importer.engines.engine import BackendOptions, Engine, LanguageModels
from fx_importer.output_types import OutputType

if TYPE_CHECKING:
    from fx_importer.calls.backend import Backend
    from fx_importer.mlir.bindings import ir
    from fx_importer.pipelines import Pipeline


def _pipeline(output_type: OutputType) -> Pipeline:
    from fx_importer.engines.xla.xla_pipeline import pipeline_for_host

    return pipeline_for_host(output_type)


def _create(options: BackendOptions) -> Backend:
    from fx_importer.engines.xla.xla_backend import XlaBackend
    from fx_importer.engines.xla.xla_devices import HOST, device_of

    if options.device != HOST:
        XLA_ENGINE.check_installed()
        device_of(options.device)  # raises before the module is compiled
    return XlaBackend(platform=options.device)


def _load_on_mesh(module: ir.Module, name: str) -> Any:
    from fx_importer.engines.xla.xla_mesh import load_on_mesh

    return load_on_mesh(module, name)


XLA_ENGINE = Engine(
    name="xla",
    create=_create,
    accepts=(OutputType.STABLEHLO,),
    pipeline=_pipeline,
    extra="xla",
    packages=("jax", "jaxlib"),
    devices=("cpu", "cuda", "rocm"),
    benchmarked=(OutputType.STABLEHLO,),
    # It computes sums along rows in order, one element at a time, unless they are split.
    language_models=LanguageModels(sum_lanes=64, fuses_sums=False),
    load_on_mesh=_load_on_mesh,
)
"""XLA, through jax and jaxlib, on devices of the host, and on those of jax's plug-ins."""

"""Artifacts for machines that have jax and numpy alone, which `stablehlo_loader` runs."""

from __future__ import annotations

from pathlib import Path

from fx_importer.engines.engine_pipeline import run_engine_pipeline
from fx_importer.engines.xla import stablehlo_loader, torch_arrays
from fx_importer.engines.xla.portable_artifact import artifact_of, elements
from fx_importer.engines.xla.xla_pipeline import xla_pipeline
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.constant_arguments import resource_constants, resource_tensor
from fx_importer.mlir.dtypes import DTYPES, UNSIGNED
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.module_io import copy_to_new_context


def loader_text() -> str:
    """Return the file to write next to an artifact: the loader, with the module of this package that it imports."""
    loader, arrays = (Path(str(module.__file__)).read_text("utf-8") for module in (stablehlo_loader, torch_arrays))
    (line,) = (line for line in loader.splitlines() if line.startswith(f"from {torch_arrays.__name__} import "))
    return loader.replace(line, arrays.replace("from __future__ import annotations\n", ""))


def bundled_artifact(module: ir.Module, platform: str, version: str) -> bytes:
    """Return the artifact of ``module``, after the passes for jax's ``platform``.

    Weights outside of the module are arguments, and constants in it stay there.
    """
    copy = copy_to_new_context(module.operation)
    run_engine_pipeline(xla_pipeline(platform, devices=1), copy)
    for function in functions_of(copy).values():
        for resource, constants in resource_constants(function, "stablehlo.constant").items():
            if (tensor := resource_tensor(resource, DTYPES | UNSIGNED)) is not None:
                with copy.context:
                    value = elements(tensor, ir.RankedTensorType(resource.type))
                for op in constants:
                    op.attributes["value"] = value
    return artifact_of(copy, version, "arguments")

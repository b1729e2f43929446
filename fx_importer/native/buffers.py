"""A function of a module as loops over memrefs."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import dialects_of
from fx_importer.mlir.module_contents import copy_module
from fx_importer.native.cblas import Cblas
from fx_importer.native.targets import NativeTarget
from fx_importer.pipelines.native import buffers
from fx_importer.pipelines.runner import run_stage
from fx_importer.rewrites.llvm.weight_hoisting import HoistedWeight, write_weights


def to_buffers(
    base: ir.Module,
    function: str,
    target: NativeTarget,
    hoisted: Sequence[HoistedWeight] = (),
    cblas: Cblas | None = None,
) -> ir.Module:
    """Return a copy of ``base``, whose weights are elided, with ``function`` as loops over memrefs.

    The block of weights begins with ``hoisted``, those of other functions.
    """
    module = copy_module(base.operation)
    write_weights(module.operation, hoisted)
    sgemm = cblas and cblas.sgemm
    for stage in buffers(dialects_of(module), function=function, processor=target.processor, sgemm=sgemm).stages:
        run_stage(stage, module)
    return module

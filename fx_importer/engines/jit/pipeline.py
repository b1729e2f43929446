"""The passes of the JIT, from a lowered module to the LLVM dialect."""

from __future__ import annotations

from collections.abc import Collection

from fx_importer.output_types import OutputType
from fx_importer.pipelines.llvm import llvm
from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.rewrites.llvm.kernel_outlining import SMALL_TRIP_COUNT
from fx_importer.rewrites.llvm.library_functions import packed_elements

_DIALECTS = {OutputType.STABLEHLO: "stablehlo", OutputType.TOSA: "tosa"}


def pipeline(dialects: Collection[str], function: str = "main", optimization: int = 2) -> Pipeline:
    """Return the passes for a module that has ``dialects``, on the CPU of this machine.

    ``optimization`` is LLVM's level. Below 3, loops that run for microseconds are optimized for size.
    """
    small_trip_count = SMALL_TRIP_COUNT if optimization < 3 else 0
    return llvm(dialects, function=function, elements=packed_elements(), small_trip_count=small_trip_count)


def pipeline_for(output_type: OutputType) -> Pipeline:
    """Return the passes for modules of ``output_type``."""
    return pipeline([_DIALECTS[output_type.root]] if output_type.root in _DIALECTS else [])

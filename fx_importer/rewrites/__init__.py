"""Python rewrites of MLIR modules: what the passes of the wheel do not do.

A rewrite takes the module's operation and changes it in place. What it cannot do it reports as an error at the location
of the operation concerned.
"""

from __future__ import annotations

from fx_importer.rewrites.allow_inlining import allow_inlining
from fx_importer.rewrites.constant_tensors import constants_to_stablehlo, constants_to_tosa, literals_to_stablehlo
from fx_importer.rewrites.in_place_state import state_to_values, values_to_memory
from fx_importer.rewrites.linalg.linalg_no_ops import linalg_without_noise
from fx_importer.rewrites.linalg.tm_tensor import tm_tensor_to_loops
from fx_importer.rewrites.nan_semantics import nans_in_linalg, nans_in_stablehlo
from fx_importer.rewrites.stablehlo import (
    complex_parts_to_stablehlo,
    numbers_to_stablehlo,
    operators_to_stablehlo,
    sizes_to_tensor,
    without_noise,
)
from fx_importer.rewrites.stablehlo.float32_accumulation import accumulate_in_float32
from fx_importer.rewrites.stablehlo.shape_refinement import refine_shapes
from fx_importer.rewrites.torch.control_flow import (
    conditional_loops_to_scf,
    control_flow_to_stablehlo,
    control_flow_to_tosa,
)
from fx_importer.rewrites.tosa.i64_narrowing import (
    fit_tosa_integers,
    narrow_tosa_integers,
    narrow_tosa_integers_unproved,
)
from fx_importer.rewrites.tosa.i64_sums import long_sums_to_tosa
from fx_importer.rewrites.tosa.isolated_regions import isolate_tosa_regions
from fx_importer.rewrites.tosa.scalar_arguments import refuse_numbers
from fx_importer.rewrites.tosa.transposed_weights import transpose_tosa_arguments, transpose_tosa_weights

__all__ = [
    "accumulate_in_float32",
    "allow_inlining",
    "complex_parts_to_stablehlo",
    "conditional_loops_to_scf",
    "constants_to_stablehlo",
    "constants_to_tosa",
    "control_flow_to_stablehlo",
    "control_flow_to_tosa",
    "fit_tosa_integers",
    "isolate_tosa_regions",
    "linalg_without_noise",
    "literals_to_stablehlo",
    "long_sums_to_tosa",
    "nans_in_linalg",
    "nans_in_stablehlo",
    "narrow_tosa_integers",
    "narrow_tosa_integers_unproved",
    "numbers_to_stablehlo",
    "operators_to_stablehlo",
    "refine_shapes",
    "refuse_numbers",
    "sizes_to_tensor",
    "state_to_values",
    "tm_tensor_to_loops",
    "transpose_tosa_arguments",
    "transpose_tosa_weights",
    "values_to_memory",
    "without_noise",
]

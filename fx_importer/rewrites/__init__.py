"""Python rewrites of MLIR modules, for tasks that no pass of the wheel does.

A rewrite changes the operation of a module in place. It reports an operation that it cannot rewrite as an error at
its location. `fx_importer.mlir.walk.rewrite` makes one a pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.mlir.walk import RewriteFamily, RewriteStep
from fx_importer.rewrites.allow_inlining import allow_inlining
from fx_importer.rewrites.checked_operands import guard_stablehlo, guard_tosa
from fx_importer.rewrites.constant_tensors import constants_to_stablehlo, constants_to_tosa, literals_to_stablehlo
from fx_importer.rewrites.in_place_state import (
    copy_new_state,
    sliced_state_to_memory,
    state_to_values,
    values_to_memory,
)
from fx_importer.rewrites.iree.constants import extend_i48_constants, inline_bf16_constants, narrow_i64_constants
from fx_importer.rewrites.iree.element_insertions import elements_to_slices
from fx_importer.rewrites.iree.half_precision_matmuls import widen_half_precision_matmuls
from fx_importer.rewrites.iree.softmax import split_softmaxes
from fx_importer.rewrites.iree.sorts import keep_order_of_equal_elements, reject_linalg_sorts
from fx_importer.rewrites.iree.while_loops import while_to_do_while
from fx_importer.rewrites.linalg.bitcasts import bitcasts_to_linalg
from fx_importer.rewrites.linalg.blocked_loops import block_loops
from fx_importer.rewrites.linalg.branches_and_loops import branches_and_loops_to_scf
from fx_importer.rewrites.linalg.channels_last import channels_last
from fx_importer.rewrites.linalg.collapsed_loops import collapse_loops
from fx_importer.rewrites.linalg.destination_style_loops import loops_to_destination_style
from fx_importer.rewrites.linalg.exact_floats import int8_matmuls_to_f32, other_int8_matmuls_to_f32
from fx_importer.rewrites.linalg.filled_results import fill_results
from fx_importer.rewrites.linalg.gelu import gelu_to_linalg
from fx_importer.rewrites.linalg.insertion_bounds import clamp_insertions
from fx_importer.rewrites.linalg.linalg_no_ops import drop_unused_results, fold_linalg_no_ops, inline_rank_0_generics
from fx_importer.rewrites.linalg.loop_interchange import interchange_loops, read_initial_values
from fx_importer.rewrites.linalg.pad_borders import fill_pad_borders
from fx_importer.rewrites.linalg.positions import inline_positions
from fx_importer.rewrites.linalg.row_writes import row_writes_to_linalg
from fx_importer.rewrites.linalg.size_broadcasts import fold_size_broadcasts
from fx_importer.rewrites.linalg.size_divisions import fold_size_divisions
from fx_importer.rewrites.linalg.tm_tensor import tm_tensor_to_loops
from fx_importer.rewrites.llvm.arena import place_results, plan_arena, plan_slots
from fx_importer.rewrites.llvm.empty_tensors import separate_empty_tensors
from fx_importer.rewrites.llvm.entry_point import call_by_address, set_entry_point
from fx_importer.rewrites.llvm.fusion_limits import keep_from_recomputation, remove_fusion_marks
from fx_importer.rewrites.llvm.kernel_outlining import outline_kernels, reassociate_sums, skip_optimization
from fx_importer.rewrites.llvm.library_binding import bind_library
from fx_importer.rewrites.llvm.library_calls import outline_blas_calls, outline_library_calls
from fx_importer.rewrites.llvm.operator_stubs import declare_operator_stubs, pass_destinations
from fx_importer.rewrites.llvm.parallel_loops import launch_on_threads
from fx_importer.rewrites.llvm.processor import set_processor
from fx_importer.rewrites.llvm.runtime_checks import insert_checks, relax_layout_casts
from fx_importer.rewrites.llvm.scalar_expansion import expand_scalars, move_bits
from fx_importer.rewrites.llvm.size_checks import simplify_size_checks
from fx_importer.rewrites.llvm.small_floats import expand_small_floats
from fx_importer.rewrites.llvm.vector_math import define_functions, replace_functions
from fx_importer.rewrites.llvm.vectorization import vectorize_sums
from fx_importer.rewrites.llvm.weight_hoisting import hoist_weights, pack_weights
from fx_importer.rewrites.nan_semantics import nans_in_linalg, nans_in_stablehlo
from fx_importer.rewrites.native.cblas_calls import call_cblas, pass_addresses
from fx_importer.rewrites.native.cmsis_nn_calls import call_cmsis_nn
from fx_importer.rewrites.native.destinations import return_by_destination
from fx_importer.rewrites.native.integer_divisions import divide_without_traps
from fx_importer.rewrites.native.integer_sums import keep_narrow_results, tile_integer_sums
from fx_importer.rewrites.native.linkage import hide_functions
from fx_importer.rewrites.native.local_variables import localize_variables
from fx_importer.rewrites.native.memory_plan import plan_memory
from fx_importer.rewrites.native.register_tiles import tile_sums
from fx_importer.rewrites.native.row_operands import transpose_operands
from fx_importer.rewrites.native.separate_fills import separate_fills
from fx_importer.rewrites.native.status_checks import insert_status_checks, return_status
from fx_importer.rewrites.native.unlowered import refuse_unlowered
from fx_importer.rewrites.stablehlo.batch_dimensions import split_batch_dimensions
from fx_importer.rewrites.stablehlo.boolean_sums import boolean_sums_to_or
from fx_importer.rewrites.stablehlo.complex_tensors import complex_parts_to_stablehlo
from fx_importer.rewrites.stablehlo.convolution_layouts import stablehlo_channels_last
from fx_importer.rewrites.stablehlo.dot_dimensions import merge_dot_dimensions
from fx_importer.rewrites.stablehlo.dynamic_sizes_to_tensor import dynamic_sizes_to_tensor
from fx_importer.rewrites.stablehlo.dynamic_slices_to_tensor import dynamic_slices_to_tensor
from fx_importer.rewrites.stablehlo.dynamic_windows_to_linalg import dynamic_windows_to_linalg
from fx_importer.rewrites.stablehlo.exact_floats import stablehlo_int8_matmuls_to_f32
from fx_importer.rewrites.stablehlo.float32_accumulation import accumulate_in_float32
from fx_importer.rewrites.stablehlo.operators import operators_to_stablehlo
from fx_importer.rewrites.stablehlo.scalar_legalization import scalars_to_stablehlo
from fx_importer.rewrites.stablehlo.scatter_sort_to_loops import scatter_sort_to_loops
from fx_importer.rewrites.stablehlo.shape_refinement import refine_stablehlo_shapes
from fx_importer.rewrites.stablehlo.stablehlo_no_ops import fold_stablehlo_no_ops
from fx_importer.rewrites.stablehlo.unsigned_comparisons import unsigned_comparisons
from fx_importer.rewrites.torch.control_flow import (
    control_flow_to_scf,
    control_flow_to_stablehlo,
    control_flow_to_tosa,
)
from fx_importer.rewrites.torch.masks import reject_masks
from fx_importer.rewrites.tosa.dynamic_convolutions import dynamic_convolutions_to_tosa
from fx_importer.rewrites.tosa.dynamic_pools import dynamic_pools_to_tosa
from fx_importer.rewrites.tosa.dynamic_sizes import dynamic_sizes_to_tosa, erase_unused_sizes
from fx_importer.rewrites.tosa.f64_narrowing import f64_convolutions_to_f32, fit_tosa_floats, narrow_tosa_floats
from fx_importer.rewrites.tosa.float_folds import keep_tosa_floats
from fx_importer.rewrites.tosa.i64_narrowing import (
    fit_tosa_integers,
    narrow_tosa_integers,
    narrow_tosa_integers_unproved,
)
from fx_importer.rewrites.tosa.i64_sums import i64_sums_to_tosa
from fx_importer.rewrites.tosa.integral_floats import fold_tosa_rounding
from fx_importer.rewrites.tosa.isolated_regions import isolate_tosa_regions
from fx_importer.rewrites.tosa.padding_types import tosa_padding_types
from fx_importer.rewrites.tosa.rank_reduction import reduce_tosa_ranks
from fx_importer.rewrites.tosa.removed_transposes import remove_tosa_transposes
from fx_importer.rewrites.tosa.scalar_arguments import reject_scalar_arguments
from fx_importer.rewrites.tosa.scatter_to_loops import tosa_scatter_to_loops
from fx_importer.rewrites.tosa.sizes_to_tensor import tosa_sizes_to_tensor
from fx_importer.rewrites.tosa.transposed_weights import transpose_tosa_arguments, transpose_tosa_weights
from fx_importer.rewrites.tosa.wide_negations import tosa_wide_negations
from fx_importer.rewrites.xla.row_matmuls import double_bf16_rows
from fx_importer.rewrites.xla.row_writes import row_writes_to_case

_ALL = (
    accumulate_in_float32,
    allow_inlining,
    bind_library,
    bitcasts_to_linalg,
    block_loops,
    branches_and_loops_to_scf,
    boolean_sums_to_or,
    call_by_address,
    clamp_insertions,
    collapse_loops,
    complex_parts_to_stablehlo,
    constants_to_stablehlo,
    constants_to_tosa,
    control_flow_to_scf,
    control_flow_to_stablehlo,
    control_flow_to_tosa,
    copy_new_state,
    declare_operator_stubs,
    define_functions,
    double_bf16_rows,
    drop_unused_results,
    elements_to_slices,
    dynamic_convolutions_to_tosa,
    dynamic_pools_to_tosa,
    dynamic_sizes_to_tensor,
    dynamic_slices_to_tensor,
    dynamic_windows_to_linalg,
    dynamic_sizes_to_tosa,
    erase_unused_sizes,
    expand_scalars,
    expand_small_floats,
    f64_convolutions_to_f32,
    fit_tosa_floats,
    fit_tosa_integers,
    fold_linalg_no_ops,
    fold_size_broadcasts,
    fold_size_divisions,
    fold_stablehlo_no_ops,
    gelu_to_linalg,
    guard_stablehlo,
    guard_tosa,
    hide_functions,
    hoist_weights,
    insert_status_checks,
    i64_sums_to_tosa,
    inline_bf16_constants,
    inline_positions,
    inline_rank_0_generics,
    insert_checks,
    int8_matmuls_to_f32,
    interchange_loops,
    isolate_tosa_regions,
    keep_from_recomputation,
    keep_narrow_results,
    keep_order_of_equal_elements,
    keep_tosa_floats,
    launch_on_threads,
    literals_to_stablehlo,
    localize_variables,
    fill_pad_borders,
    fill_results,
    loops_to_destination_style,
    merge_dot_dimensions,
    move_bits,
    nans_in_linalg,
    nans_in_stablehlo,
    narrow_i64_constants,
    extend_i48_constants,
    narrow_tosa_floats,
    narrow_tosa_integers,
    narrow_tosa_integers_unproved,
    operators_to_stablehlo,
    other_int8_matmuls_to_f32,
    outline_blas_calls,
    outline_library_calls,
    pack_weights,
    pass_addresses,
    pass_destinations,
    place_results,
    plan_arena,
    plan_memory,
    plan_slots,
    read_initial_values,
    reassociate_sums,
    refuse_unlowered,
    reduce_tosa_ranks,
    fold_tosa_rounding,
    refine_stablehlo_shapes,
    reject_linalg_sorts,
    reject_masks,
    reject_scalar_arguments,
    relax_layout_casts,
    remove_fusion_marks,
    remove_tosa_transposes,
    replace_functions,
    return_by_destination,
    return_status,
    row_writes_to_case,
    row_writes_to_linalg,
    scalars_to_stablehlo,
    scatter_sort_to_loops,
    separate_empty_tensors,
    separate_fills,
    tile_integer_sums,
    divide_without_traps,
    simplify_size_checks,
    skip_optimization,
    sliced_state_to_memory,
    split_batch_dimensions,
    split_softmaxes,
    stablehlo_channels_last,
    stablehlo_int8_matmuls_to_f32,
    state_to_values,
    transpose_operands,
    tm_tensor_to_loops,
    tosa_padding_types,
    tosa_scatter_to_loops,
    tosa_sizes_to_tensor,
    tosa_wide_negations,
    transpose_tosa_arguments,
    transpose_tosa_weights,
    unsigned_comparisons,
    values_to_memory,
    vectorize_sums,
    while_to_do_while,
    widen_half_precision_matmuls,
)
REWRITES: Mapping[str, RewriteStep] = {step.name: step for step in _ALL}
"""Every rewrite by the name of its pass, under which the text of a pipeline is read back."""
REWRITE_FAMILIES: Mapping[str, RewriteFamily] = {
    family.name: family
    for family in (call_cblas, call_cmsis_nn, channels_last, outline_kernels, set_entry_point, set_processor, tile_sums)
}
"""Every rewrite with options by the name of its pass."""

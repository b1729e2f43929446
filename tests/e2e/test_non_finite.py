"""Edge values, `testing.edges`, through what each output type runs on; together, since a call may cost a process.

The rows here are those that a lowering of torch-mlir's had wrong. ``python -m testing.edge_matrix`` has all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fx_importer import OutputType, lower
from testing.edge_deviations import DEVIATIONS, rows
from testing.edge_matrix import Batch, difference, verdicts
from testing.edges import ROWS
from testing.elementwise_sweep import sweep

OF_ALL = (
    "compare_bool_i64 compare_u8_i8 compare_tenths compare_half_tenths compare_u8_numbers clamp_wide_bounds "
    "shift_keeps_dtype bitwise_numbers where_mixed pow_mixed fmod_i16_f16 signbit_of_nan copysign_of_nan "
    "view_f32_as_i8 view_f32_as_i16 view_i8_as_f32 view_f16_as_i8 view_f16_as_i16 view_i8_as_f16 "
    "view_bf16_as_i8 view_bf16_as_i16 view_i8_as_bf16 view_i32_as_i64 to_e4m3fn gelu_tanh_of_inf "
    "digamma_of_poles atanh_of_zeros divide_by_zero "
)
TESTED = {
    OutputType.LINALG_ON_TENSORS: (
        "relu6 hardtanh hardsigmoid elu gelu_tanh clamp clamp_min clamp_nan clamp_tensors clamp_i32_float_bounds "
        "minimum maximum max_dim min_dim argmax argmax_all reciprocal pow_of_-1 pow_i32_of_5 pow_i32_of_half "
        "pow_i32_of_float_tensor fmod floor_divide floor_divide_signs floor_divide_i64 floor_divide_i8 fmod_by_i32_3 "
        "remainder_of_3 floor_divide_by_3 abs_neg_i64 arithmetic_wraps_i8 is isclose equal_nan compare_a_constant "
        "copysign index_i32 sum_f16 mean_of_large_f16 norm_f16 avg_pool_f16 sum_bf16 cdist_bf16 div_f16 logaddexp "
        "gelu_of_the_largest remainder_of_the_largest max_pool_indices max_pool3d_indices " + OF_ALL
    ),
    OutputType.STABLEHLO: (
        "max_dim min_dim argmax remainder_signs fmod floor_divide remainder_i32 remainder_i64 floor_divide_i64 "
        "remainder_of_3 isclose equal_nan sort sort_descending sort_stable topk topk_smallest kthvalue index_negative "
        "index_pair_negative index_i32 take sum_f16 mean_of_large_f16 norm_f16 matmul_f16 linear_f16 bmm_f16 conv_f16 "
        "matmul_bf16 gelu_of_the_largest remainder_of_the_largest bool_arithmetic " + OF_ALL
    ),
    OutputType.TOSA: (
        "relu clamp_min clamp_nan clamp_tensor_min elu gelu_tanh sqrt exp2 expm1 log1p pow_of_2.25 two_pow remainder "
        "fmod floor_divide sum_f16 norm_f16 norm is isclose index_put_negative "
        "remainder_signs fmod_signs floor_divide_signs div_floor_signs div_trunc_signs remainder_by_3 fmod_by_3 tanh "
        "tanhshrink mish softshrink sinc pow gelu_of_the_largest clamp_i8 relu_i8 compare_i8 sum_i16 remainder_i8 "
        "bool_arithmetic diagonal mul_by_zero add_of_zero exp_of_log log_of_exp sinh remainder_i32 floor_divide_i64 "
        + OF_ALL
    ),
}

BATCH = 24
"""Rows in one program. LLVM takes three times as long for a function of a hundred rows."""


def differences(output_type: OutputType) -> dict[str, str]:
    """Return the deviation of each row, or an empty string."""
    names = TESTED[output_type].split()
    tested = [row for row in ROWS if row.name in names]
    found: dict[str, str] = {}
    for batch in (tested[start : start + BATCH] for start in range(0, len(tested), BATCH)):
        inputs = [list(row.inputs) for row in batch]
        results = lower(Batch(batch), inputs, output_type=output_type).run(inputs)
        found |= {row.name: difference(row, ours) for row, ours in zip(batch, results, strict=True)}
    return found


@pytest.mark.slow_rows("tosa")
@pytest.mark.parametrize("output_type", TESTED, ids=lambda kind: kind.value)
def test_edge_values(output_type: OutputType):
    """The rows in the table of deviations deviate, and no others."""
    found = {name: text for name, text in differences(output_type).items() if text}
    assert found.keys() == {name for name, known in DEVIATIONS.items() if output_type in known.output_types}, found


def test_every_deviation_is_tested():
    tested = {(name, kind) for kind, names in TESTED.items() for name in names.split()}
    assert {(name, kind) for name, each in DEVIATIONS.items() for kind in each.output_types} <= tested


def test_page_lists_the_deviations():
    page = Path(__file__).parents[2] / "docs" / "numerics.md"
    assert rows() in page.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("output_type", list(TESTED), ids=lambda kind: kind.value)
def test_sweep_of_dtypes_and_special_values(output_type: OutputType):
    rows = sweep(output_type, seed=0, share=0.01)
    found = [each for start in range(0, len(rows), 12) for each in verdicts(rows[start : start + 12], output_type)]
    assert not {name: wrong for name, wrong in found if wrong}

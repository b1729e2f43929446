"""Known differences from eager for special values: the result, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fx_importer.output_types import OutputType

LINALG, STABLEHLO, TOSA = OutputType.LINALG_ON_TENSORS, OutputType.STABLEHLO, OutputType.TOSA


@dataclass(frozen=True)
class Deviation:
    """A known difference in a row of `testing.edges`."""

    output_types: tuple[OutputType, ...]
    case: str
    ours: str
    eager: str
    why: str


_ALL = (LINALG, STABLEHLO, TOSA)
_NO_REMAINDER = "TOSA has no remainder, and its quotient is a product with a reciprocal"
_NO_BITS = "TOSA has no operator that reads bits, and NaN compares with nothing"
_INTERPRETED = "`tosa.tanh` of the reference model; within the specification's tolerance"

DEVIATIONS: Mapping[str, Deviation] = {
    "gelu_of_the_largest": Deviation(
        _ALL,
        "`gelu` (without `tanh`) of inf, and of the largest float",
        "inf; the argument",
        "NaN; inf",
        "eager's vectorized kernel of float32 overflows; that of one element, and of float64, gives what ours does",
    ),
    "remainder_of_the_largest": Deviation(
        (LINALG, STABLEHLO),
        "`remainder`, `fmod` of 3.4e38 and 0.5",
        "0",
        "NaN (`remainder`), and so in `fmod`",
        "the quotient overflows in eager's vectorized kernel; 0 is the remainder",
    ),
    "remainder_signs": Deviation((TOSA,), "`remainder` of 3.0 and 0.3", "0", "0.29999989", _NO_REMAINDER),
    "fmod_signs": Deviation((TOSA,), "`fmod` of 3.0 and 0.3", "0", "0.29999989", _NO_REMAINDER),
    "floor_divide_signs": Deviation((TOSA,), "`3.0 // 0.3`", "10", "9", _NO_REMAINDER),
    "div_floor_signs": Deviation((TOSA,), "`div(3.0, 0.3, rounding_mode='floor')`", "10", "9", _NO_REMAINDER),
    "div_trunc_signs": Deviation((TOSA,), "`div(7.5, 0.3, rounding_mode='trunc')`", "25", "24", _NO_REMAINDER),
    "remainder_by_3": Deviation((TOSA,), "`remainder` of 1e10 and 3", "-1018", "1", _NO_REMAINDER),
    "fmod_by_3": Deviation((TOSA,), "`fmod` of 1e10 and 3", "-1021", "1", _NO_REMAINDER),
    "tanh": Deviation((TOSA,), "`tanh` of 1e-10", "0", "1e-10", _INTERPRETED),
    "tanhshrink": Deviation((TOSA,), "`tanhshrink` of 1e-10", "1e-10", "0", _INTERPRETED),
    "mish": Deviation((TOSA,), "`mish` of -88", "0", "-5.3e-37", _INTERPRETED),
    "signbit_of_nan": Deviation((TOSA,), "`signbit` of a negative NaN", "False", "True", _NO_BITS),
    "copysign_of_nan": Deviation((TOSA,), "`copysign` by a negative NaN", "positive", "negative", _NO_BITS),
    "pow": Deviation((TOSA,), "the largest float to the power of 1", "inf", "the float", "`tosa.pow` rounds up"),
}
"""By the name of the row."""


def rows() -> str:
    """Return the table of docs/numerics.md."""
    lines = ["| case | in | comes out as | eager gives | why |", "|---|---|---|---|---|"]
    for each in DEVIATIONS.values():
        where = ", ".join(kind.value for kind in each.output_types)
        lines.append(f"| {each.case} | {where} | {each.ours} | {each.eager} | {each.why} |")
    return "".join(f"{line}\n" for line in lines)

"""Floats of LLVM IR in hexadecimal."""

import pytest

from fx_importer.native import ir_text


@pytest.mark.parametrize(
    "line, expected",
    [
        ("  %1 = fmul float %0, f0x3E88B32F", "  %1 = fmul float %0, 0x3FD11665E0000000"),
        ("  %1 = fadd float %0, 1.000000e-01", "  %1 = fadd float %0, 0x3FB99999A0000000"),
        ("  ret double 1.000000e-01", "  ret double 0x3FB999999999999A"),
        ("  store float -inf, ptr %1", "  store float 0xFFF0000000000000, ptr %1"),
        ("  store float f0x7FC00000, ptr %1", "  store float 0x7FF8000000000000, ptr %1"),
        ("  store half 1.5, ptr %1", "  store half 0xH3E00, ptr %1"),
        ("  store bfloat f0x3F80, ptr %1", "  store bfloat 0xR3F80, ptr %1"),
        ("  %2 = fpext float 2.5 to double", "  %2 = fpext float 0x4004000000000000 to double"),
        ('@text = constant [9 x i8] c"float 0.5"', '@text = constant [9 x i8] c"float 0.5"'),
        ("  %x.1 = load float, ptr %0, align 4", "  %x.1 = load float, ptr %0, align 4"),
        ("@__constant_2xf32 = private constant [2 x float] zeroinitializer",) * 2,
    ],
)
def test_floats_are_hexadecimal(line, expected):
    assert ir_text._line(line) == expected

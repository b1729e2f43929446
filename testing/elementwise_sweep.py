"""Elementwise operators on pairs of dtypes and special values, against eager, seeded; as rows of `testing.edges`.

python -m testing.elementwise_sweep --output-type tosa [--seed 1] [--share 0.2] [--only NAME,...]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf, nan
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer import OutputType
from testing.edges import Row

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
_SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}
NUMBERS = (0, 1, -1, 2, -3, 2**31, -(2**40) - 1, 2**63 - 1, 0.5, -2.5, 1e300, inf, -inf, nan, -0.0, True, False)
"""Python scalars, beyond 32 bits and beyond float32 too."""

_UNARY = (
    "abs neg sign sgn positive signbit isnan isinf isfinite isposinf isneginf isreal logical_not bitwise_not ceil "
    "floor round trunc frac exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin acos "
    "atan sinh cosh tanh asinh acosh atanh sigmoid relu erf erfc erfinv lgamma digamma i0 sinc logit nan_to_num "
    "deg2rad rad2deg special.entr special.ndtr special.log_ndtr special.ndtri special.i0e special.i1 special.i1e "
    "special.erfcx angle"
)
_ACTIVATIONS = (
    "relu6 silu gelu elu selu celu softplus logsigmoid mish hardswish hardsigmoid hardtanh leaky_relu softsign "
    "tanhshrink hardshrink softshrink"
)
_BINARY = (
    "add sub mul div floor_divide remainder fmod pow float_power atan2 maximum minimum fmax fmin eq ne lt le gt ge "
    "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift "
    "copysign nextafter hypot heaviside xlogy special.xlog1py logaddexp logaddexp2 gcd lcm isclose rsub"
)
_TERNARY = "clamp addcmul addcdiv lerp where"


MaybeRow = Callable[[], Row | None]
"""Makes a row; None where eager raises an error."""


def _function(name: str) -> Callable[..., Any]:
    return functools.reduce(getattr, name.split("."), torch)


UNARY: dict[str, Callable[[Tensor], Any]] = {
    **{name: _function(name) for name in _UNARY.split()},
    **{name: getattr(F, name) for name in _ACTIVATIONS.split()},
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "to": lambda x: tuple(x.to(dtype) for dtype in FLOATS if dtype != torch.float64),
}
BINARY: dict[str, Callable[..., Any]] = {
    **{name: _function(name) for name in _BINARY.split()},
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "clamp_min": lambda x, y: torch.clamp(x, min=y),
    "clamp_max": lambda x, y: torch.clamp(x, max=y),
    "where_positive": lambda x, y: torch.where(x > 0, x, y),
    "lerp_scalar": lambda x, y: torch.lerp(x, y, 0.25),
}
TERNARY: dict[str, Callable[..., Any]] = {
    **{name: _function(name) for name in _TERNARY.split()},
    "where": lambda x, y, z: torch.where(x != 0, y, z),
}
_DIVISIONS = ("div", "floor_divide", "remainder", "fmod", "div_floor", "div_trunc", "bitwise_left_shift", "gcd", "lcm")
_ROUGH = {
    **dict.fromkeys(("erfinv", "lgamma", "digamma", "special.ndtri", "special.log_ndtr"), (2e-4, 2e-5)),
    **dict.fromkeys(("special.ndtr", "special.entr"), (1e-3, 1e-3)),
    **dict.fromkeys(("sin", "cos", "tan", "gelu", "gelu_tanh", "logaddexp", "logaddexp2", "sinc"), (1e-4, 1e-5)),
}
_UNSIGNED_ZEROS = (
    *("relu", "leaky_relu", "softshrink", "trunc", "frac", "floor_divide", "div_floor", "div_trunc"),
    *("maximum", "minimum", "fmax", "fmin", "clamp_min", "logaddexp", "logaddexp2", "lgamma"),
    *("clamp_max", "clamp", "remainder", "fmod", "lerp", "lerp_scalar", "addcmul", "addcdiv"),
    *("nextafter", "where", "sinc", "rsub", "heaviside", "relu6", "hardtanh"),
)
_PERIODIC = ("sin", "cos", "tan", "sinc", "lgamma", "digamma")
_QUOTIENTS = ("remainder", "fmod", "floor_divide", "div_floor", "div_trunc", "addcmul", "addcdiv", "lerp")
"""Without numbers so large or small that a quotient overflows: eager's vectorized kernels have no remainder then."""
_INEXACT_IN_TOSA = 1e-30
"""Quotients of TOSA are products with a reciprocal, which overflows for subnormal numbers."""


def values(dtype: torch.dtype, *, small: bool = False) -> Tensor:
    """Return special values of ``dtype``; if ``small``, whose sums and products do not overflow integers."""
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        numbers = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 5.0, -0.75, info.max, info.min]
        found = torch.tensor([*numbers, info.smallest_normal, -info.smallest_normal * info.eps], dtype=dtype)
        integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        negative = (found[:1].view(integer) | torch.iinfo(integer).min).view(dtype)
        return found if small else torch.cat([negative, found])  # TOSA cannot read the sign of NaN
    info = torch.iinfo(dtype)
    numbers = [0, 1, 2, 3, 7, *([-1, -2, -3] if info.min else [])]
    if not small:
        numbers += [info.max, info.min, info.max // 2 + 1, 100]
        numbers += [2**31, -(2**31) - 1, 2**32, 2**53 + 1, 2**40] if dtype is torch.int64 else []
    return torch.tensor(numbers, dtype=dtype)


def _usual(name: str, x: Tensor, small: bool) -> Tensor:
    """Return the elements of ``x`` on which the operator is compared."""
    if not x.is_floating_point():
        return x
    size = x.abs().double()
    if name == "gelu":  # where eager's kernels differ
        x = x[size < 1e30]
    elif name in _PERIODIC:
        x = x[~(size > 1e3) | x.isinf()]
    elif name in _QUOTIENTS or "lerp" in name:
        x = x[~((size > 1e30) | (size < _INEXACT_IN_TOSA) | (size == torch.finfo(x.dtype).max)) | x.isinf() | (x == 0)]
    return x[~(x.abs() <= torch.finfo(x.dtype).smallest_normal) | (x == 0)] if small else x


def _pairs(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    return left.repeat_interleave(right.numel()), right.repeat(left.numel())


def tolerance(name: str, dtypes: Sequence[torch.dtype]) -> tuple[float, float]:
    """Return the tolerance: some units in the last place of the coarsest dtype."""
    floats = [each for each in dtypes if each.is_floating_point] or [torch.float32]
    unit = max(torch.finfo(each).eps for each in floats)
    relative, absolute = _ROUGH.get(name, (2e-5, 1e-37))
    fine = unit < 1e-10
    coarse = torch.float16 in floats
    return (1e-5 if fine else max(relative, 2 * unit)), max(absolute, 2e-7 if coarse else 0.0)


def _row(name: str, compute: Callable[..., Any], operator: str, inputs: tuple[Tensor, ...]) -> Row | None:
    """Return the row, or None where eager raises an error."""
    row = Row(name, compute, inputs, tolerance(operator, [x.dtype for x in inputs]), operator not in _UNSIGNED_ZEROS)
    try:
        found = compute(*inputs)
    except (RuntimeError, ZeroDivisionError, IndexError, TypeError, ValueError, OverflowError):
        return None
    results = found if isinstance(found, tuple) else (found,)
    return row if all(isinstance(each, Tensor) for each in results) else None


def _defined(operator: str, x: Tensor, y: Tensor) -> Tensor:
    """Return where the operation on integers is defined: no division by zero, nor of the minimum by -1."""
    kept = torch.ones_like(x, dtype=torch.bool)
    if operator in _DIVISIONS and not (x.is_floating_point() or y.is_floating_point()):
        kept &= (y != 0) | (operator == "div")
        if x.dtype not in (torch.bool, torch.uint8):
            kept &= ~((x == torch.iinfo(x.dtype).min) & (y == -1))
    if "shift" in operator:
        kept &= (y >= 0) & (y < 8)
    return kept


def unary_rows(floats: Sequence[torch.dtype], small: bool) -> Iterator[MaybeRow]:
    for (name, compute), dtype in itertools.product(UNARY.items(), (*floats, *INTEGERS, torch.bool)):
        x = _usual(name, values(dtype, small=small), small)
        yield partial(_row, f"{name}-{_SHORT[dtype]}", compute, name, (x,))


def binary_rows(floats: Sequence[torch.dtype], small: bool) -> Iterator[MaybeRow]:
    dtypes = (*floats, *INTEGERS, torch.bool)
    for (name, compute), left, right in itertools.product(BINARY.items(), dtypes, dtypes):
        kind = f"{name}-{_SHORT[left]}-{_SHORT[right]}"
        little = small or name in ("pow", "float_power", "lcm")
        x, y = _pairs(*(_usual(name, values(d, small=s), small) for d, s in ((left, small), (right, little))))
        kept = _defined(name, x, y)
        yield partial(_row, kind, compute, name, (x[kept], y[kept]))
        x = _usual(name, values(left, small=small), small)
        rank_zero = values(right, small=True)
        for place, y in enumerate((rank_zero[[9 if right.is_floating_point else -1]], rank_zero[[0]])):
            kept = _defined(name, x, y.expand_as(x))
            yield partial(_row, f"{kind}-rank0-{place}", compute, name, (x[kept], y[0]))


def scalar_rows(floats: Sequence[torch.dtype], small: bool) -> Iterator[MaybeRow]:
    for (name, compute), dtype, number in itertools.product(BINARY.items(), (*floats, *INTEGERS, torch.bool), NUMBERS):
        x = _usual(name, values(dtype, small=small), small)
        if name in _DIVISIONS and not isinstance(number, float) and not x.is_floating_point() and number in (0, -1):
            continue
        if "shift" in name and not 0 <= number < 8:
            continue
        if small and abs(number) > 2**16 and not x.is_floating_point():
            continue
        label = f"{name}-{_SHORT[dtype]}-{number}"
        yield partial(_row, label, lambda x, f=compute, n=number: f(x, n), name, (x,))
        yield partial(
            _row, f"{label}-reversed", lambda x, f=compute, n=number: f(n, x), name, (x[_reversible(name, x)],)
        )


def _reversible(name: str, x: Tensor) -> Tensor:
    keep = torch.ones_like(x, dtype=torch.bool)
    if name in _DIVISIONS and not x.is_floating_point():
        keep &= (x != 0) & (x != (-1 if x.dtype not in (torch.bool, torch.uint8) else 0))
    return keep & (x >= 0) & (x < 8) if "shift" in name else keep


def ternary_rows(floats: Sequence[torch.dtype], small: bool) -> Iterator[MaybeRow]:
    dtypes = (*floats, *INTEGERS, torch.bool)
    for (name, compute), first, second, third in itertools.product(TERNARY.items(), dtypes, dtypes, dtypes):
        x, y = _pairs(*(_usual(name, values(each, small=True), small) for each in (first, second)))
        z = _usual(name, values(third, small=True), small)
        z = z.repeat(-(-x.numel() // z.numel()))[: x.numel()]
        kind = f"{name}-{_SHORT[first]}-{_SHORT[second]}-{_SHORT[third]}"
        yield partial(_row, kind, compute, name, (x, y, z))
        yield partial(_row, f"{kind}-rank0", compute, name, (x, y[0], z[1]))


def sweep(output_type: OutputType, seed: int, share: float) -> list[Row]:
    """Return a seeded share of all rows; for TOSA without float64, and without integer overflow."""
    tosa = output_type is OutputType.TOSA
    floats = tuple(each for each in FLOATS if each is not torch.float64) if tosa else FLOATS
    choose = random.Random(seed)
    rows = []
    with torch.random.fork_rng():
        for kind, weight in ((unary_rows, 4.0), (binary_rows, 0.6), (scalar_rows, 0.4), (ternary_rows, 0.25)):
            made = [each() for each in kind(floats, tosa) if choose.random() < share * weight]
            rows += [row for row in made if row is not None and not (tosa and row.name.startswith("float_power"))]
    return rows


def main() -> None:
    from testing.edge_matrix import verdicts

    parser = argparse.ArgumentParser()
    parser.add_argument("--output-type", default="linalg-on-tensors")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--only")
    parser.add_argument("--batch", type=int, default=100)
    arguments = parser.parse_args()
    output_type = OutputType.get(arguments.output_type)
    rows = sweep(output_type, arguments.seed, arguments.share)
    if arguments.only:
        rows = [row for row in rows if any(part in row.name for part in arguments.only.split(","))]
    print(len(rows), "rows", flush=True)
    wrong = 0
    for start in range(0, len(rows), arguments.batch):
        for name, found in verdicts(rows[start : start + arguments.batch], output_type):
            if found:
                wrong += 1
                print(f"{name}: {found}", flush=True)
    print(f"{len(rows)} rows, {wrong} wrong")


if __name__ == "__main__":
    main()

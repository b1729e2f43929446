"""Helpers of the rules of special functions: arithmetic in floating point, and Chebyshev series."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import Decomposition, Operator, decomposes

SERIES_FILE = Path(__file__).with_name("series.json")
HALF_DTYPES = (torch.float16, torch.bfloat16)


def decomposes_in_float(*operators: Operator) -> Callable[[Callable[..., Tensor]], Decomposition]:
    """Label a function as the decomposition of ``operators`` whose leading arguments are float tensors.

    The leading tensors and numbers are passed as tensors of one dtype: float32 for half precision, whose result is
    rounded again; the default dtype for integers. The rule returns ``NotImplemented`` for complex numbers.
    """

    def label(function: Callable[..., Tensor]) -> Decomposition:
        count = function.__code__.co_argcount

        @functools.wraps(function)
        def rule(*args: Any, **kwargs: Any) -> Any:
            operands, rest = args[:count], args[count:]
            dtype = _float_dtype(*operands)
            if dtype.is_complex:
                return NotImplemented
            wide = torch.float32 if dtype in HALF_DTYPES else dtype
            return function(*(_to_tensor(operand, wide) for operand in operands), *rest, **kwargs).to(dtype)

        return decomposes(*operators)(rule)

    return label


def _float_dtype(*operands: Tensor | float) -> torch.dtype:
    dtype = functools.reduce(
        torch.promote_types, (torch.result_type(operands[0], operand) for operand in operands[1:] or operands)
    )
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def _to_tensor(x: Tensor | float, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype)


def any_true(mask: Tensor) -> Tensor:
    """Return whether any element of ``mask`` is true, as a rank-zero tensor."""
    return torch.sum(mask.float()) > 0


@dataclass(frozen=True)
class Series:
    """A function on an interval as a Chebyshev series, evaluated by Clenshaw's recurrence (DLMF 3.11.15)."""

    low: float
    high: float
    coefficients: tuple[float, ...]
    """For float64, at least three. A narrower dtype uses the leading ones above its rounding error."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return the function of ``x``; outside the interval the result is undefined."""
        least = torch.finfo(x.dtype).eps / 4 * max(map(abs, self.coefficients))
        terms = list(self.coefficients)
        while abs(terms[-1]) < least:
            terms.pop()
        scale = 2 / (self.high - self.low)
        u = x * scale - (1 + self.low * scale)
        twice = u + u
        last, before = twice * terms[-1] + terms[-2], terms[-1]
        for coefficient in reversed(terms[1:-2]):
            # The recurrence starts from a scalar: a filled tensor of dynamic size does not lower to TOSA.
            last, before = twice * last + (coefficient - before), last
        return u * last - before + terms[0]


@functools.cache
def series(name: str) -> Series:
    """Return a series of ``series.json``, which names the function; ``benchmarks/special_series.py`` writes it."""
    record = json.loads(SERIES_FILE.read_text())[name]
    return Series(record["low"], record["high"], tuple(record["coefficients"]))

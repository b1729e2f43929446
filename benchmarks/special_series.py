"""Computes the Chebyshev series of `fx_importer.decompositions.special` with mpmath and compares them with its file.

    python -m benchmarks.special_series           # the largest difference of each series
    python -m benchmarks.special_series --write   # write the coefficients

The file, `SERIES_FILE`, names the function of each series.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import mpmath as mp

from fx_importer.decompositions.special.chebyshev import SERIES_FILE

DIGITS, NODES = 40, 50
Function = Callable[[Any], Any]


def _inverse_over_x(w: Any) -> Any:
    """Return ``erfinv(x) / x`` for ``w = -log(1 - x**2)``, by Newton's method on the logarithm of erfc."""
    small = mp.exp(-w)
    q = small / (1 + mp.sqrt(1 - small))
    y = mp.erfinv(1 - q) if w < 30 else mp.sqrt(-mp.log(q * mp.sqrt(mp.pi * w)))
    for _ in range(60):
        value = mp.erfc(y)
        step = (mp.log(value) - mp.log(q)) / (-2 * mp.exp(-y * y) / mp.sqrt(mp.pi) / value)
        y -= step
        if abs(step) < mp.mpf(10) ** -32:
            break
    return y / (1 - q)


def _wave(order: int, x: Any) -> Any:
    """Return ``P + i Q`` of the Bessel functions (DLMF 10.17)."""
    phase = x - mp.pi / 4 - order * mp.pi / 2
    return (mp.besselj(order, x) + 1j * mp.bessely(order, x)) * mp.sqrt(mp.pi * x / 2) * mp.exp(-1j * phase)


def _airy(z: Any) -> tuple[Any, Any]:
    """Return P and Q of the Airy function, computed from Ai and Bi."""
    x = (3 * z / 2) ** (mp.mpf(2) / 3)
    size, angle = mp.sqrt(mp.pi) * mp.root(x, 4), z + mp.pi / 4
    a, b = mp.airyai(-x) * size, mp.airybi(-x) * size
    return mp.sin(angle) * a + mp.cos(angle) * b, mp.sin(angle) * b - mp.cos(angle) * a


def _airy_right(z: Any) -> Any:
    x = (3 * z / 2) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(z) * mp.airyai(x)


def _z(x: int) -> Any:
    return 2 * mp.mpf(x) ** mp.mpf(1.5) / 3


def _of(change: Function, function: Function) -> Function:
    return lambda v: function(change(v))


def _root(least: int) -> Function:
    """Return the function from ``(least / x)**2`` to x."""
    return lambda v: least / mp.sqrt(v)


def functions() -> Mapping[str, Function]:
    """Return the function that each series approximates, in mpmath."""
    zero = mp.findroot(mp.digamma, 1.46)
    half_log = mp.log(2 * mp.pi) / 2
    return {
        "LOG_GAMMA": lambda x: mp.loggamma(x) / ((x - 1) * (x - 2)),
        "LOG_GAMMA_CORRECTION": _of(
            _root(3), lambda x: x * (mp.loggamma(x) - (x - mp.mpf(0.5)) * mp.log(x) + x - half_log)
        ),
        "DIGAMMA": lambda x: mp.digamma(x) / (x - zero),
        "DIGAMMA_CORRECTION": _of(_root(3), lambda x: x * x * (mp.log(x) - 1 / (2 * x) - mp.digamma(x))),
        "LOG1P_LESS_X": lambda x: (mp.log1p(x) - x) / x**2,
        "ERFCX": _of(lambda t: mp.mpf(3.75) * (1 + t) / (1 - t), lambda x: (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)),
        "ERFINV_CENTRE": _inverse_over_x,
        "ERFINV_TAIL": lambda log: _inverse_over_x(mp.exp(2 * log)) / mp.exp(log),
        "I0_SMALL": lambda x: mp.exp(-x) * mp.besseli(0, x),
        "I0_LARGE": _of(lambda v: 8 / v, lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(0, x)),
        "I1_SMALL": lambda x: mp.exp(-x) * mp.besseli(1, x) / x,
        "I1_LARGE": _of(lambda v: 8 / v, lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(1, x)),
        "K0_SMALL": _of(lambda v: 2 * mp.sqrt(v), lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)),
        "K1_SMALL": _of(lambda v: 2 * mp.sqrt(v), lambda x: x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))),
        "K0_LARGE": _of(lambda v: 2 / v, lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(0, x)),
        "K1_LARGE": _of(lambda v: 2 / v, lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(1, x)),
        "J0_SMALL": lambda v: mp.besselj(0, 8 * mp.sqrt(v)),
        "J1_SMALL": _of(lambda v: 8 * mp.sqrt(v), lambda x: mp.besselj(1, x) / x),
        "Y0_SMALL": _of(
            lambda v: 8 * mp.sqrt(v), lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)
        ),
        "Y1_SMALL": _of(
            lambda v: 8 * mp.sqrt(v),
            lambda x: (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x,
        ),
        "P0": _of(_root(8), lambda x: _wave(0, x).real),
        "Q0": _of(_root(8), lambda x: x * _wave(0, x).imag),
        "P1": _of(_root(8), lambda x: _wave(1, x).real),
        "Q1": _of(_root(8), lambda x: x * _wave(1, x).imag),
        "AIRY_MIDDLE": mp.airyai,
        "AIRY_RIGHT": lambda v: _airy_right(_z(2) / v),
        "AIRY_P": lambda v: _airy(_z(4) / mp.sqrt(v))[0],
        "AIRY_Q": lambda v: _z(4) / mp.sqrt(v) * _airy(_z(4) / mp.sqrt(v))[1],
        "ATAN": lambda v: mp.atan(mp.sqrt(v)) / mp.sqrt(v),
        "ASIN": lambda v: mp.asin(mp.sqrt(v)) / mp.sqrt(v),
    }


def coefficients(function: Function, low: float, high: float) -> tuple[float, ...]:
    """Return the Chebyshev series of ``function`` on an interval, to the precision of float64 (DLMF 3.11.11)."""
    angles = [(k + mp.mpf(0.5)) * mp.pi / NODES for k in range(NODES)]
    scale, centre = (mp.mpf(high) - low) / 2, (mp.mpf(high) + low) / 2
    values = [function(centre + scale * mp.cos(angle)) for angle in angles]
    found = [
        2 * mp.fsum(value * mp.cos(j * angle) for value, angle in zip(values, angles, strict=True)) / NODES
        for j in range(NODES)
    ]
    found[0] /= 2
    least = max(map(abs, found)) * mp.mpf(10) ** -18
    while abs(found[-1]) < least:
        found.pop()
    return tuple(map(float, found))


def main() -> None:
    """Print the difference of each series from the file, and write it anew with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the coefficients")
    write = parser.parse_args().write
    mp.mp.dps = DIGITS
    table = json.loads(SERIES_FILE.read_text())
    for name, function in functions().items():
        computed = coefficients(function, table[name]["low"], table[name]["high"])
        pairs = zip(computed, table[name]["coefficients"], strict=False)
        print(name, len(computed), f"{max(abs(a - b) for a, b in pairs):.1e}")
        table[name]["coefficients"] = computed
    if write:
        lines = (f"{json.dumps(name)}: {json.dumps(record)}" for name, record in table.items())
        SERIES_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

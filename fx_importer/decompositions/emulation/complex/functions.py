"""Rules of elementary functions of complex numbers, as functions of their real and imaginary parts.

Each rule returns ``NotImplemented`` for real tensors. Roots and inverse functions follow Kahan, "Branch Cuts for
Complex Elementary Functions" (1987), without its care for overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.emulation.complex.parts import parts_of_tensor
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten

Parts = tuple[Tensor, Tensor]


Function = Callable[[Tensor, Tensor], Parts]
"""From the real and imaginary part of the argument to the parts of the result."""


def _elementwise(*operators: OpOverload) -> Callable[[Function], Decomposition]:
    """Label a function of both parts as the rule of ``operators`` on complex tensors."""

    def label(function: Function) -> Decomposition:
        def rule(x: Tensor) -> Any:
            return torch.complex(*function(*parts_of_tensor(x))) if x.is_complex() else NotImplemented

        rule.__module__, rule.__qualname__ = function.__module__, function.__qualname__
        return Decomposition(operators, rule)

    return label


@_elementwise(aten.sgn.default)
def sgn(a: Tensor, b: Tensor) -> Parts:
    """Return ``x / |x|``, and zero for zero."""
    magnitude = torch.hypot(a, b)
    whole = torch.where(magnitude == 0, 1.0, magnitude)
    return a / whole, b / whole


def _sqrt(a: Tensor, b: Tensor) -> Parts:
    """Return the square root whose real part is not negative."""
    magnitude = torch.hypot(a, b)
    root = torch.sqrt(magnitude * 0.5 + a.abs() * 0.5)
    other = torch.where(root == 0, 0.0, b.abs() * 0.5 / torch.where(root == 0, 1.0, root))
    return torch.where(a < 0, other, root), torch.copysign(torch.where(a < 0, root, other), b)


def _log(operator: OpOverload, base: float) -> Decomposition:
    def log(a: Tensor, b: Tensor) -> Parts:
        return torch.log(torch.hypot(a, b)) / base, torch.atan2(b, a) / base

    return _elementwise(operator)(log)


@_elementwise(aten.log1p.default)
def log1p(a: Tensor, b: Tensor) -> Parts:
    """Return ``log(1 + x)``, accurate near zero."""
    near = 0.5 * torch.log1p(a * (2.0 + a) + b * b)
    far = torch.log(torch.hypot(1.0 + a, b))
    return torch.where(torch.hypot(a, b) < 0.5, near, far), torch.atan2(b, 1.0 + a)


@_elementwise(aten.expm1.default)
def expm1(a: Tensor, b: Tensor) -> Parts:
    """Return ``exp(x) - 1``, accurate near zero."""
    half = torch.sin(b * 0.5)
    return torch.expm1(a) * torch.cos(b) - 2.0 * half * half, torch.exp(a) * torch.sin(b)


@_elementwise(aten.exp2.default)
def exp2(a: Tensor, b: Tensor) -> Parts:
    """Return ``2 ** x``."""
    magnitude, angle = torch.exp2(a), b * math.log(2)
    return magnitude * torch.cos(angle), magnitude * torch.sin(angle)


@_elementwise(aten.sin.default)
def sin(a: Tensor, b: Tensor) -> Parts:
    """Return the sine."""
    return torch.sin(a) * torch.cosh(b), torch.cos(a) * torch.sinh(b)


@_elementwise(aten.cos.default)
def cos(a: Tensor, b: Tensor) -> Parts:
    """Return the cosine."""
    return torch.cos(a) * torch.cosh(b), -torch.sin(a) * torch.sinh(b)


@_elementwise(aten.sinh.default)
def sinh(a: Tensor, b: Tensor) -> Parts:
    """Return the hyperbolic sine."""
    return torch.sinh(a) * torch.cos(b), torch.cosh(a) * torch.sin(b)


@_elementwise(aten.cosh.default)
def cosh(a: Tensor, b: Tensor) -> Parts:
    """Return the hyperbolic cosine."""
    return torch.cosh(a) * torch.cos(b), torch.sinh(a) * torch.sin(b)


@_elementwise(aten.tanh.default)
def tanh(a: Tensor, b: Tensor) -> Parts:
    """Return the hyperbolic tangent.

    Its parts are ``t / d`` and ``s c / (d cosh(a)**2)``, where ``d = c**2 + t**2 s**2``.
    """
    t, s, c = torch.tanh(a), torch.sin(b), torch.cos(b)
    scale = c * c + t * t * s * s
    inverse = 1.0 / torch.cosh(a)
    return t / scale, s * c * inverse * inverse / scale


@_elementwise(aten.asin.default)
def asin(a: Tensor, b: Tensor) -> Parts:
    """Return the inverse sine."""
    (pr, pi), (qr, qi) = _sqrt(1.0 - a, -b), _sqrt(1.0 + a, b)
    return torch.atan2(a, pr * qr - pi * qi), torch.asinh(pr * qi - pi * qr)


@_elementwise(aten.acos.default)
def acos(a: Tensor, b: Tensor) -> Parts:
    """Return the inverse cosine."""
    (pr, pi), (qr, qi) = _sqrt(1.0 - a, -b), _sqrt(1.0 + a, b)
    return 2.0 * torch.atan2(pr, qr), torch.asinh(qr * pi - qi * pr)


@_elementwise(aten.acosh.default)
def acosh(a: Tensor, b: Tensor) -> Parts:
    """Return the inverse hyperbolic cosine."""
    (pr, pi), (qr, qi) = _sqrt(a - 1.0, b), _sqrt(a + 1.0, b)
    return torch.asinh(pr * qr + pi * qi), 2.0 * torch.atan2(pi, qr)


@_elementwise(aten.atanh.default)
def atanh(a: Tensor, b: Tensor) -> Parts:
    """Return the inverse hyperbolic tangent."""
    away = 1.0 - a
    real = 0.25 * torch.log1p(4.0 * a / (away * away + b * b))
    return real, 0.5 * torch.atan2(2.0 * b, away * (1.0 + a) - b * b)


def _composed(operator: OpOverload, function: Callable[[Tensor], Tensor]) -> Decomposition:
    """Return the rule that computes ``function`` of complex numbers."""
    return Decomposition((operator,), lambda x: function(x) if x.is_complex() else NotImplemented)


def _with_rotated_argument(operator: OpOverload, of: Decomposition) -> Decomposition:
    """Return the rule of ``f(x) = -i g(i x)``, where ``of`` is the rule of ``g``."""

    def rule(x: Tensor) -> Any:
        if not x.is_complex():
            return NotImplemented
        a, b = parts_of_tensor(x)
        real, imaginary = parts_of_tensor(of(torch.complex(-b, a)))
        return torch.complex(imaginary, -real)

    return Decomposition((operator,), rule)


@decomposes(aten.exp.default)
def exp(x: Tensor) -> Any:
    """Return ``exp(real) * (cos(imaginary) + i sin(imaginary))``."""
    if not x.is_complex():
        return NotImplemented
    real, imaginary = parts_of_tensor(x)
    magnitude = torch.exp(real)
    return torch.complex(magnitude * torch.cos(imaginary), magnitude * torch.sin(imaginary))


COMPLEX_FUNCTIONS = (
    *(_elementwise(aten.sqrt.default)(_sqrt), sgn, log1p, expm1, exp2),
    *(_log(aten.log.default, 1.0), _log(aten.log2.default, math.log(2)), _log(aten.log10.default, math.log(10))),
    _composed(aten.rsqrt.default, lambda x: torch.reciprocal(torch.sqrt(x))),
    _composed(aten.sigmoid.default, lambda x: torch.reciprocal(torch.exp(-x) + 1.0)),
    *(sin, cos, sinh, cosh, tanh, asin, acos, acosh, atanh),
    *(
        _with_rotated_argument(aten.tan.default, tanh),
        _with_rotated_argument(aten.asinh.default, asin),
        _with_rotated_argument(aten.atan.default, atanh),
    ),
)

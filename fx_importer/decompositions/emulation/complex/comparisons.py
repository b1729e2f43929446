"""Rules of comparisons, classification and logic of complex tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from fx_importer.decompositions.emulation.complex.parts import Operand, Part, is_complex, parts_of, parts_of_tensor
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.eq.Tensor, aten.eq.Scalar)
def eq(a: Operand, b: Operand) -> Any:
    """Return whether both parts are equal."""
    if not is_complex(a, b):
        return NotImplemented
    (ar, ai), (br, bi) = parts_of(a), parts_of(b)
    return _same(ar, br) & _same(ai, bi)


def _same(a: Part, b: Part) -> Tensor | bool:
    if isinstance(a, Tensor):
        return torch.eq(a, b)
    return torch.eq(b, a) if isinstance(b, Tensor) else a == b


@decomposes(aten.ne.Tensor, aten.ne.Scalar)
def ne(a: Operand, b: Operand) -> Any:
    """Return whether any part differs."""
    return eq(a, b).logical_not() if is_complex(a, b) else NotImplemented


@decomposes(aten.isclose.default)
def isclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether ``a == b``, or ``|a - b|`` is finite and at most ``atol + rtol * |b|``."""
    if not is_complex(a, b):
        return NotImplemented
    error, bound = (a - b).abs(), atol + b.abs() * rtol
    close = (a == b) | (torch.isfinite(error) & (error <= bound))
    return close | (torch.isnan(a) & torch.isnan(b)) if equal_nan else close


def _predicate(operator: OpOverload) -> Callable[[Callable[[Tensor, Tensor], Tensor]], Decomposition]:
    """Label a function of both parts that returns bools as a rule of ``operator``."""

    def label(function: Callable[[Tensor, Tensor], Tensor]) -> Decomposition:
        def rule(x: Tensor) -> Any:
            return function(*parts_of_tensor(x)) if x.is_complex() else NotImplemented

        rule.__module__, rule.__qualname__ = function.__module__, function.__qualname__
        return Decomposition((operator,), rule)

    return label


@_predicate(aten.isnan.default)
def isnan(a: Tensor, b: Tensor) -> Tensor:
    """Return whether any part is NaN."""
    return torch.isnan(a) | torch.isnan(b)


@_predicate(aten.isinf.default)
def isinf(a: Tensor, b: Tensor) -> Tensor:
    """Return whether any part is infinite."""
    return torch.isinf(a) | torch.isinf(b)


@_predicate(aten.isfinite.default)
def isfinite(a: Tensor, b: Tensor) -> Tensor:
    """Return whether both parts are finite."""
    return torch.isfinite(a) & torch.isfinite(b)


@_predicate(aten.logical_not.default)
def logical_not(a: Tensor, b: Tensor) -> Tensor:
    """Return whether both parts are zero."""
    return (a == 0) & (b == 0)


def _on_nonzero(operator: OpOverload) -> Decomposition:
    """Return the rule that computes ``operator`` of ``x != 0``."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        if not is_complex(*(argument for argument in args if isinstance(argument, Tensor))):
            return NotImplemented
        return operator(*tree_map(lambda e: e != 0 if is_complex(e) else e, args), **kwargs)

    return Decomposition((operator,), rule)


_PREDICATES = (
    *(aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims),
    *(aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default),
    *(aten.nonzero.default, aten.count_nonzero.default, aten.count_nonzero.dim_IntList),
)


COMPARISONS = (isnan, isinf, isfinite, logical_not, isclose, *map(_on_nonzero, _PREDICATES))

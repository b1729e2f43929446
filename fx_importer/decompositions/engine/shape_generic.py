"""Restriction of decomposition rules to graphs that are correct for every size of a dynamic dimension.

A rule that branches on a symbolic size, or loops up to it, specializes: torch decides by the sizes of the example, and
adds a guard. No guards are checked after export, so the graph would be wrong for other sizes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols
from torch.fx.passes import shape_prop

from fx_importer.decompositions.engine.kept.kept_rule import KeptRule
from fx_importer.decompositions.engine.local.rule_tracing import checking_operands, checks_operands
from fx_importer.decompositions.engine.table import LayeredRule
from fx_importer.frontend.torch_patches import GUARD_CHECK, GUARD_LOG, TENSOR_METADATA, patched
from fx_importer.fx_graph.emission import has_symbolic_sizes

_TORCH_LOG = logging.getLogger("torch.fx.experimental.symbolic_shapes")


class _ShapeDependentGuard(Exception):
    """A rule decided on a symbolic size in a way that does not hold for all sizes."""


class ShapeGenericRules(Mapping[Any, Callable[..., Any]]):
    """``rules`` that return ``NotImplemented`` where their graph would add a guard on a symbolic size of ``env``.

    A rule is wrapped when it is first looked up.
    """

    def __init__(self, rules: Mapping[Any, Callable[..., Any]], env: ShapeEnv):
        self._rules, self._env = rules, env
        self._wrapped: dict[Any, Callable[..., Any]] = {}

    def __getitem__(self, operator: Any) -> Callable[..., Any]:
        if operator not in self._wrapped:
            self._wrapped[operator] = _make_shape_generic(self._rules[operator], self._env)
        return self._wrapped[operator]

    def __contains__(self, operator: object) -> bool:
        return operator in self._rules

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)


def _make_shape_generic(rule: Callable[..., Any], env: ShapeEnv) -> Callable[..., Any]:
    """Return ``rule`` wrapped; of a `LayeredRule` or `KeptRule`, each layer, so that the next one is tried."""
    if isinstance(rule, LayeredRule):
        return LayeredRule(_make_shape_generic(rule.first, env), _make_shape_generic(rule.otherwise, env))
    if isinstance(rule, KeptRule):
        return replace(rule, own=None if rule.own is None else _make_shape_generic(rule.own, env))
    return _ShapeGenericRule(rule, env)


class _ShapeGenericRule:
    def __init__(self, rule: Callable[..., Any], env: ShapeEnv):
        self._rule, self._env = rule, env

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not has_symbolic_sizes((args, kwargs)):
            return self._rule(*args, **kwargs)
        try:
            with _forbid_guards(self._env):
                return self._rule(*args, **kwargs)
        except _ShapeDependentGuard:
            return NotImplemented


@contextmanager
def _forbid_guards(env: ShapeEnv) -> Iterator[None]:
    """Raise `_ShapeDependentGuard` where ``env`` is about to add a guard that does not hold for all sizes."""
    checked = env._check_frozen

    def check(condition: sympy.Basic, value: sympy.Basic) -> None:
        if not (checks_operands.get() or _runs_fake_mode()) and not _holds_for_all_sizes(condition, value):
            raise _ShapeDependentGuard(f"{condition} is {value}")
        checked(condition, value)

    filters = [*_TORCH_LOG.filters, _is_unrelated_to_guards]  # torch logs exceptions that are raised here
    with patched({GUARD_CHECK.on(env): check, GUARD_LOG.on(_TORCH_LOG): filters}):
        yield


def _runs_fake_mode() -> bool:
    """Return whether the fake mode infers a result: it is not on the stack of modes while it handles an operator."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None


@contextmanager
def allow_guards_of_metadata() -> Iterator[None]:
    """Let torch decide on sizes for the metadata of nodes (their memory formats), which no rule depends on."""
    extract = shape_prop._extract_tensor_metadata

    def unchecked(*args: Any, **kwargs: Any) -> Any:
        with checking_operands():
            return extract(*args, **kwargs)

    with patched({TENSOR_METADATA: unchecked}):
        yield


def _is_unrelated_to_guards(record: logging.LogRecord) -> bool:
    return "failed during evaluate_expr" not in str(record.msg)


def _holds_for_all_sizes(condition: sympy.Basic, value: sympy.Basic) -> bool:
    """Return whether ``condition`` is ``value`` for all sizes >= 2, or equates two sizes, as operators check.

    Conditions on data-dependent sizes are checked when the program runs: torch decides no branch by them.
    """
    if value == sympy.true and free_unbacked_symbols(condition):
        return True
    from_two = {symbol: sympy.Dummy(integer=True, nonnegative=True) + 2 for symbol in condition.free_symbols}
    simplified = condition.xreplace(from_two)
    agree = isinstance(simplified, sympy.Eq) and all(argument.free_symbols for argument in simplified.args)
    return simplified == value or (agree and value == sympy.true)

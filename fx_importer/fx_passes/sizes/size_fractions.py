"""Sizes times fractions in integer arithmetic, for TOSA, whose shape operations have no others."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import torch
from torch import SymInt, fx

from fx_importer.fx_graph.emission import value_of


def size_by_fraction(node: fx.Node) -> fx.Node | None:
    """Return ``size * 1.5``, rounded to an integer, as ``size * 3 // 2``; None for other nodes."""
    rounds_up = node.target is math.ceil
    parts = _fraction(node.args[0], up=rounds_up) if node.target in _ROUNDINGS else None
    if parts is None:
        return None
    size, fraction = parts
    total = _call(node, operator.mul, size, fraction.numerator)
    if rounds_up:
        total = _call(node, operator.add, total, fraction.denominator - 1)
    result = _call(node, operator.floordiv, total, fraction.denominator)
    result.meta["val"] = value_of(node)  # not an expression that torch would have to prove equal
    return result


def _fraction(product: Any, *, up: bool) -> tuple[fx.Node, Fraction] | None:
    """Return the size and the fraction that a product or quotient, rounded up or down, is of; None for others."""
    if not isinstance(product, fx.Node) or product.target not in (operator.mul, operator.truediv):
        return None
    numbers = [argument for argument in product.args if isinstance(argument, int | float)]
    nodes = [_size(argument) for argument in product.args if isinstance(argument, fx.Node)]
    if len(numbers) != 1 or len(nodes) != 1 or nodes[0] is None or not numbers[0] > 0 or numbers[0] == math.inf:
        return None
    if product.target is operator.mul:
        fraction = _exact(float(numbers[0]), up=up)
    else:
        fraction = Fraction(1, int(numbers[0])) if product.args[1] == int(numbers[0]) else None
    return None if fraction is None else (nodes[0], fraction)


def _exact(factor: float, *, up: bool) -> Fraction | None:
    """Return the fraction whose products with sizes are rounded to the same integers as those with ``factor``.

    None if there is none. Non-integer products are at least 1 / 4096 from one, further than float64 rounds sizes below
    2**40. Where the fraction's product is an integer, a relative error of ``factor`` of at most 2**-54 rounds away, and
    a larger one is harmless in the direction that the rounding to an integer takes back.
    """
    fraction = Fraction(factor).limit_denominator(1 << 12)
    if not fraction:
        return None
    error = Fraction(factor) / fraction - 1
    tolerated = Fraction(1, 1 << (53 if (error < 0) == up else 54))
    return fraction if abs(error) <= tolerated else None


def _size(node: fx.Node) -> fx.Node | None:
    """Return ``node`` if it is an integer, or the integer that it converts."""
    size = node.args[0] if node.target is torch.sym_float else node
    return size if isinstance(size, fx.Node) and isinstance(value_of(size), SymInt) else None


def _call(before: fx.Node, function: Any, *args: Any) -> fx.Node:
    with before.graph.inserting_before(before):
        node = before.graph.call_function(function, args)
    values = [value_of(argument) if isinstance(argument, fx.Node) else argument for argument in args]
    node.meta["val"] = function(*values)
    return node


_ROUNDINGS = (math.floor, math.trunc, math.ceil, torch.sym_int)
"""Roundings of sizes, which are not negative."""

"""Weights that a lowering does not see: the module names them, and is given them when it is done.

So nothing in it can depend on their elements, and what was lowered once holds for other weights of the same types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import declared, resource, resources_in, size_of

_PREFIX = "fx_importer.elided"
_NAME = re.compile(rf'dense_resource<"{_PREFIX}/(\d+)/(?:([\dx]*)/([\d.]*)/)?(?:_\d+)*">')
"""A resource without bytes: its number; and, if it was transposed, the shape that it had before, and the order of axes.
MLIR adds an underscore and a number to a name that the context has already."""


def stand_in(number: int, type_: ir.Type) -> ir.Attribute:
    """Return an attribute of ``type_`` that stands for the weight ``number``."""
    return declared(f"{_PREFIX}/{number}/", type_)


def transposed_stand_in(
    value: ir.Attribute, shape: tuple[int, ...], order: tuple[int, ...], to: ir.Type
) -> ir.Attribute | None:
    """Return what stands for a weight, in ``shape``, with its axes in another ``order``.

    None if ``value`` stands for none, or for one that is transposed already.
    """
    found = _NAME.match(str(value))
    if found is None or found[2] is not None:
        return None
    return declared(f"{_PREFIX}/{found[1]}/{'x'.join(map(str, shape))}/{'.'.join(map(str, order))}/", to)


def _numbers(text: str, separator: str) -> list[int]:
    return [int(each) for each in text.split(separator) if each]


@dataclass(frozen=True)
class Lent:
    """A weight by its name, and what gives its elements, in order and flat: those of the model, where that can be."""

    name: str
    elements: Callable[[], np.ndarray]


def link(module: ir.Module, weights: list[Lent]) -> None:
    """Put ``weights``, by their numbers, into the places where they were withheld.

    Raises:
        ValueError: if ``module`` names one that there is not, or that is not of its size.
    """
    if not weights:
        return
    made: dict[ir.Attribute, ir.Attribute] = {}
    for op, name, value in resources_in(module.operation):
        if value not in made and (found := _NAME.match(str(value))) is not None:
            made[value] = _linked(value, found, weights)
        if value in made:
            op.attributes[name] = made[value]


def _linked(value: ir.Attribute, found: re.Match[str], weights: list[Lent]) -> ir.Attribute:
    number = int(found[1])
    if number >= len(weights):
        raise ValueError(f"there are {len(weights)} weights, and none of number {number}")
    name, array = weights[number].name, weights[number].elements()
    if array.nbytes != size_of(value):
        raise ValueError(f"{name} has {array.nbytes} bytes, and not {size_of(value)}")
    if found[2] is not None:
        array = np.ascontiguousarray(array.reshape(_numbers(found[2], "x")).transpose(_numbers(found[3], ".")))
        name = f"{name}.transposed"
    return resource(array, name, value.type)

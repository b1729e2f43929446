"""Weight handles: resources without data that stand for weights in a module, to be resolved later.

The name of a handle holds its scope and a number; the scope is what it is used for:

* the cache elides weights, so that a lowering cannot depend on their elements and holds for all weights of their types;
* a module that goes to another process has a handle where that process has the weight already;
* a module that goes to another context has handles where MLIR could rename the resources;
* the JIT compiles handles, so that code cannot depend on elements and holds for all weights of their types.

Three mechanisms are different, and elsewhere. With ``weights="external"`` users see the names, so an elided resource
has the name of its weight (`elided_resource`). Parameters of IREE are operations, not attributes
(`fx_importer.engines.iree.iree_parameters`). Interpreters and XLA take weights as arguments
(`fx_importer.mlir.constant_arguments.take_resources`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import byte_size, elided_resource, replace_constants, resource, resources_in


class HandleScope(Enum):
    """The purpose of a handle. A handle of one scope may be replaced by one of another, as any resource may be."""

    CACHE = "fx_importer.elided"
    TRANSFER = "fx_importer.transfer"
    LINK = "fx_importer.link"
    LOAD = "fx_importer.load"


@dataclass(frozen=True)
class WeightHandle:
    """A weight by its number in a scope: as it is, or reshaped to ``shape`` and transposed by ``permutation``."""

    scope: HandleScope
    number: int
    shape: tuple[int, ...] = ()
    permutation: tuple[int, ...] | None = None

    def attribute(self, type_: ir.Type) -> ir.Attribute:
        """Return the resource of ``type_`` that is this handle."""
        layout = ""
        if self.permutation is not None:
            layout = f"{'x'.join(map(str, self.shape))}/{'.'.join(map(str, self.permutation))}/"
        return elided_resource(f"{self.scope.value}/{self.number}/{layout}", type_)

    @staticmethod
    def of(value: ir.Attribute, scope: HandleScope) -> WeightHandle | None:
        """Return the handle that the resource ``value`` is; None if it is none of ``scope``."""
        parsed = _NAME.match(str(value))
        if parsed is None or parsed[1] != scope.value:
            return None
        if parsed[3] is None:
            return WeightHandle(scope, int(parsed[2]))
        return WeightHandle(scope, int(parsed[2]), _integers(parsed[3], "x"), _integers(parsed[4], "."))


_SCOPES = "|".join(re.escape(member.value) for member in HandleScope)
_NAME = re.compile(rf'dense_resource<"({_SCOPES})/(\d+)/(?:([\dx]*)/([\d.]*)/)?(?:_\d+)*">')
"""Scope, number, and where it is transposed the shape and the permutation.

A slash ends each, since MLIR adds an underscore and a number to a name that the context has already.
"""


def _integers(text: str, separator: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in text.split(separator) if digits)


def transposed_handle(
    value: ir.Attribute, shape: tuple[int, ...], permutation: tuple[int, ...], to: ir.Type
) -> ir.Attribute | None:
    """Return a handle of type ``to`` for the elided weight ``value``, reshaped to ``shape`` and transposed.

    None if ``value`` is not a handle of an elided weight, or is already transposed.
    """
    handle = WeightHandle.of(value, HandleScope.CACHE)
    if handle is None or handle.permutation is not None:
        return None
    return replace(handle, shape=shape, permutation=permutation).attribute(to)


@dataclass(frozen=True)
class ElidedWeight:
    """The name of a weight, and a function that returns its elements in order, flat; without a copy where possible."""

    name: str
    elements: Callable[[], np.ndarray]


def link_elided(module: ir.Module, weights: Sequence[ElidedWeight]) -> None:
    """Replace the handles of elided weights in ``module`` by ``weights``, indexed by their numbers.

    Raises:
        ValueError: if a number is out of range, or the weight has another size in bytes than its handle.
    """
    if not weights:
        return

    def linked(value: ir.Attribute) -> ir.Attribute | None:
        handle = WeightHandle.of(value, HandleScope.CACHE)
        return None if handle is None else _resource(value, handle, weights)

    replace_constants(resources_in(module.operation), linked)


def _resource(value: ir.Attribute, handle: WeightHandle, weights: Sequence[ElidedWeight]) -> ir.Attribute:
    if handle.number >= len(weights):
        raise ValueError(f"the module has a handle of weight {handle.number}, but there are {len(weights)} weights")
    name, array = weights[handle.number].name, weights[handle.number].elements()
    if array.nbytes != byte_size(value):
        raise ValueError(f"weight {name!r} has {array.nbytes} bytes, but its handle has {byte_size(value)}")
    if handle.permutation is not None:
        array = np.ascontiguousarray(array.reshape(handle.shape).transpose(handle.permutation))
        name = f"{name}.transposed"
    return resource(array, name, value.type)

"""The signature of a function of a lowered program: its arguments and results, as data and read from JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

Fixed = bool | int | float | str | None


@dataclass(frozen=True)
class ValueType:
    """The type of a tensor or a number."""

    dtype: str
    """The torch name of the dtype, such as ``"float32"``; for a number, ``"int"``, ``"float"`` or ``"bool"``."""
    shape: tuple[int | str, ...] | None = None
    """None for a number. A string is a symbolic dimension: one of ``Function.symbols``, or an expression of them."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of a static tensor, such as a weight."""
        return tuple(map(int, self.shape or ()))


@dataclass(frozen=True)
class Leaf:
    """A leaf of the nested inputs or outputs of the model."""

    path: str
    """A Python expression: ``args[0]['mask']``, ``kwargs['scale']``, ``output.logits``."""
    type: ValueType | None = None
    """None for leaves without a run-time value: None and strings."""
    fixed: bool = False
    """Whether the program is specialized to one value of it."""
    value: Fixed = None
    """The value that the program is specialized to."""


@dataclass(frozen=True)
class Tree:
    """The nested inputs, ``(args, kwargs)``, or outputs of the model."""

    spec: pytree.TreeSpec | None
    """None if it was read from a file and contains a type without a serialized name."""
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True)
class Argument:
    """An argument of a function."""

    kind: Literal["input", "state", "weight"]
    name: str
    """For an input, the placeholder's name; for state and weights, the name in the state dict."""
    type: ValueType
    leaf: int | None = None
    """For an input: its index among the leaves of the inputs."""
    overwritten: bool = False
    """Whether the function mutates it in place."""
    passed_as: str | None = None
    """The dtype that the function takes, if it differs from the model's. With narrow integers, ``"int32"``: values are
    converted, and have to fit. For complex numbers, the dtype of their real and imaginary parts, which form an
    additional last axis of size two, as in `torch.view_as_real`; ``type`` does not include this axis."""


@dataclass(frozen=True)
class Result:
    """A result of a function."""

    kind: Literal["output", "state", "input", "gradient"]
    """``state`` and ``input``: the new value of a mutated tensor. ``gradient``: of a parameter or an input."""
    name: str
    """For an output, its path; otherwise the name of the tensor whose new value or gradient it is."""
    type: ValueType
    leaf: int | None = None
    """For an output: its index among the leaves of the outputs. For an input: among the leaves of the inputs."""
    passed_as: str | None = None
    """The dtype that the function returns, if it differs from the model's; see `Argument`."""


@dataclass(frozen=True)
class Function:
    """A function of the module: an entry point of the program."""

    inputs: Tree
    outputs: Tree
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    symbols: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """Symbolic dimensions with their minimum and maximum sizes, inclusive; None means unbounded."""


def function_from_json(found: Any) -> Function:
    """Return the function of a JSON object.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: if it describes none.
        NotImplementedError: if a type of inputs or outputs is not registered with torch.
    """
    return Function(
        _tree(found["inputs"]),
        _tree(found["outputs"]),
        tuple(Argument(**fields_from_json(each)) for each in found["arguments"]),
        tuple(Result(**fields_from_json(each)) for each in found["results"]),
        {name: (least, greatest) for name, (least, greatest) in found.get("symbols", {}).items()},
    )


def _tree(found: Any) -> Tree:
    spec = None if found["spec"] is None else pytree.treespec_loads(json.dumps(found["spec"]))
    return Tree(spec, tuple(Leaf(**fields_from_json(each)) for each in found["leaves"]))


def fields_from_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON object, with its type parsed."""
    fields = dict(found)
    if (type_ := fields.get("type")) is not None:
        fields["type"] = type_from_json(type_)
    return fields


def type_from_json(found: Mapping[str, Any]) -> ValueType:
    """Return the type of a JSON object; raise ValueError if its dtype or shape is none."""
    dtype, shape = found["dtype"], found.get("shape")
    check_dtype(dtype)
    if shape is None:
        return ValueType(dtype)
    sizes: tuple[Any, ...] = tuple(shape) if isinstance(shape, list) else (None,)
    if not all(isinstance(size, str) or (type(size) is int and size >= 0) for size in sizes):
        raise ValueError(f"{shape!r} is no shape")
    return ValueType(dtype, sizes)


def check_dtype(name: str) -> None:
    """Raise ValueError if torch has no dtype ``name``."""
    if not isinstance(getattr(torch, name, None), torch.dtype):  # also true for numbers, since torch.int is a dtype
        raise ValueError(f"{name!r} is no dtype")

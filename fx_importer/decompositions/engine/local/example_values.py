"""Example values of nodes: their types, as far as decomposition rules can depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.local.rule_tracing import (
    RetraceRequired,
    SymbolicNumber,
    SymNumber,
    size_expression,
)


def example_values(argument: Any, values: Mapping[fx.Node, Tensor]) -> Any:
    """Return ``argument`` with nodes replaced by example values; ``values`` take precedence."""
    if isinstance(argument, fx.Node):
        return values.get(argument, argument.meta["val"])
    if isinstance(argument, SymbolicNumber):
        return argument.number
    if isinstance(argument, tuple | list):
        items = [example_values(item, values) for item in argument]
        return tuple(items) if isinstance(argument, tuple) else items
    if isinstance(argument, dict):
        return {key: example_values(item, values) for key, item in argument.items()}
    return argument


def type_key(value: Tensor) -> Any:
    """Return all that a rule can depend on in a tensor: dtype, shape, strides, device and conjugation."""
    if type(value) is not FakeTensor:
        raise RetraceRequired(f"it takes a tensor of type {type(value).__name__}")
    if value.layout is not torch.strided:
        return id(value)
    shape, strides = tuple(value.shape), value.stride()
    if any(type(size) is not int for size in (*shape, *strides)):
        shape, strides = (tuple(map(size_expression, sizes)) for sizes in (shape, strides))
    complex_bits = value.dtype.is_complex and value.is_conj(), value.is_neg()
    return value.dtype, shape, strides, size_expression(value.storage_offset()), value.device, complex_bits


def has_type_of(result: Any, value: Any) -> bool:
    """Return whether the result of a rule has the type that the exported node has."""
    if isinstance(value, tuple | list):
        return isinstance(result, tuple | list) and all(map(has_type_of, result, value)) and len(result) == len(value)
    if isinstance(value, Tensor):
        example = result.meta["val"] if isinstance(result, fx.Node) else None
        return isinstance(example, Tensor) and same_type(example, value) and example.layout == value.layout
    if isinstance(value, SymNumber):
        return (result.number.node.expr if isinstance(result, SymbolicNumber) else result) == value.node.expr
    return value is None or result == value


def same_type(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same dtype, and shapes that are equal by the guards, without adding one."""
    return a.dtype == b.dtype and a.dim() == b.dim() and all(map(_same_size, a.shape, b.shape))


def _same_size(a: int | SymInt, b: int | SymInt) -> bool:
    return size_expression(a) == size_expression(b) or statically_known_true(a == b)


def keep_exported_types(result: Any, value: Any, values: Mapping[fx.Node, Any], steps: frozenset[fx.Node]) -> None:
    """Give results the example values of the exported node, with the strides that later nodes were traced with."""
    if isinstance(result, fx.Node) and isinstance(value, Tensor):
        if result in steps:
            values[result].meta["val"] = value
    elif isinstance(result, tuple | list) and isinstance(value, tuple | list):
        for each, type_ in zip(result, value, strict=True):
            keep_exported_types(each, type_, values, steps)

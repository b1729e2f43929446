"""Python numbers that are computed from items of tensors as rank-0 tensors, for output types that only have tensors.

``x * y.sum().item()`` multiplies by the tensor, and a number that is returned is returned as a tensor of rank 0, which
callers give back as a number. Integers are int64; floats, which are double precision in Python, are float64, or float32
where the output type has no other.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)

from fx_importer.canonicalization.node_rewriting import converted, emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs

_ITEMS = (aten.item.default, aten._local_scalar_dense.default)
_EXAMPLES: dict[type, Any] = {SymBool: True, SymInt: 1, SymFloat: 1.0}


def numbers_to_tensors(program: ExportedProgram, floats: torch.dtype) -> ExportedProgram:
    """Return ``program`` with tensors for numbers from items, where operators take them and in its results.

    ``floats`` is the dtype of floating-point numbers.
    """
    if not any(node.target in _ITEMS for node in program.graph.nodes):
        return program

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        numbers = _Numbers(floats)
        for node in list(graph.nodes):
            if node.op == "call_function" and node.target in _CONSUMERS:
                made = _CONSUMERS[node.target](node, numbers)
                if made is not None:
                    node.replace_all_uses_with(made)
                    graph.erase_node(node)
        if owner is program.graph_module:
            output = graph.output_node()
            output.args = (tuple(numbers.of(each) or each for each in output.args[0]),)  # type: ignore[union-attr]
        graph.eliminate_dead_code()

    return with_rewritten_graphs(program, rewrite)


def with_number_results(program: ExportedProgram, original: ExportedProgram) -> ExportedProgram:
    """Return ``program``, decomposed, with the results that ``original`` returns as numbers recorded as such.

    A trace of the whole program records what they are now: tensors.
    """
    kinds = [type(s.arg) for s in original.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    specs = list(program.graph_signature.output_specs)
    places = [place for place, spec in enumerate(specs) if spec.kind is OutputKind.USER_OUTPUT]
    for place, kind in zip(places, kinds, strict=False):
        if kind in (SymBoolArgument, SymIntArgument, SymFloatArgument) and isinstance(specs[place].arg, TensorArgument):
            specs[place] = replace(specs[place], arg=kind(name=specs[place].arg.name))
    changed = copy.copy(program)
    changed._graph_signature = replace(program.graph_signature, output_specs=specs)
    return changed


class _Numbers:
    """The rank-0 tensors of numbers, each emitted once, where the number is computed."""

    def __init__(self, floats: torch.dtype):
        self._dtypes: dict[type, torch.dtype] = {SymBool: torch.bool, SymInt: torch.int64, SymFloat: floats}
        self._floats = floats
        self._made: dict[fx.Node, fx.Node | None] = {}

    def of(self, node: Any) -> fx.Node | None:
        """Return ``node``, a number that is computed from items, as a tensor; None for anything else."""
        if not isinstance(node, fx.Node) or type(value_of(node)) not in self._dtypes:
            return None
        if node not in self._made:
            self._made[node] = self._emit(node)
        return self._made[node]

    def _emit(self, node: fx.Node) -> fx.Node | None:
        dtype = self._dtypes[type(value_of(node))]
        if node.target in _ITEMS:
            read = emit(node, aten.clone.default, emit(node, aten.reshape.default, node.args[0], []))  # as it is now
            return converted(node, read, dtype)
        if node.target in (torch.sym_float, torch.sym_int, math.trunc):
            x = self.of(node.args[0])
            return x and converted(node, x, dtype)
        function = _ARITHMETIC.get(node.target)
        parts = [self.of(each) for each in node.args]
        known = next((each for each in parts if each is not None), None)
        if function is None or known is None or node.kwargs:
            return None
        kinds = []
        for place, each in enumerate(node.args):
            if parts[place] is None:
                if type(each) not in (bool, int, float):
                    return None
                kind = {bool: torch.bool, int: torch.int64, float: self._floats}[type(each)]
                parts[place] = emit(node, aten.full_like.default, known, each, dtype=kind)
            kinds.append(value_of(parts[place]).dtype)
        common = self._floats if self._floats in kinds or node.target in _OF_FLOATS else torch.int64
        if set(kinds) == {torch.bool} and node.target not in _OF_NUMBERS:
            common = torch.bool
        if node.target is torch.sym_ite:
            common = dtype
        first = 1 if node.target is torch.sym_ite else 0
        given = [x if i < first else converted(node, x, common) for i, x in enumerate(parts) if x is not None]
        return converted(node, function(node, *given), dtype)


def _calls(target: Any, **keywords: Any) -> Callable[..., fx.Node]:
    return lambda before, *parts: emit(before, target, *parts, **keywords)


_FUNCTIONS = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
_OF_NUMBERS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow, operator.neg)
_ARITHMETIC: dict[Any, Callable[..., fx.Node]] = {
    operator.add: _calls(aten.add.Tensor),
    operator.sub: _calls(aten.sub.Tensor),
    operator.mul: _calls(aten.mul.Tensor),
    operator.truediv: _calls(aten.div.Tensor),
    operator.floordiv: _calls(aten.div.Tensor_mode, rounding_mode="floor"),
    operator.mod: _calls(aten.remainder.Tensor),
    operator.pow: _calls(aten.pow.Tensor_Tensor),
    operator.neg: _calls(aten.neg.default),
    operator.abs: _calls(aten.abs.default),
    operator.eq: _calls(aten.eq.Tensor),
    operator.ne: _calls(aten.ne.Tensor),
    operator.lt: _calls(aten.lt.Tensor),
    operator.le: _calls(aten.le.Tensor),
    operator.gt: _calls(aten.gt.Tensor),
    operator.ge: _calls(aten.ge.Tensor),
    operator.and_: _calls(aten.bitwise_and.Tensor),
    operator.or_: _calls(aten.bitwise_or.Tensor),
    torch.sym_max: _calls(aten.maximum.default),
    torch.sym_min: _calls(aten.minimum.default),
    torch.sym_not: _calls(aten.logical_not.default),
    torch.sym_ite: _calls(aten.where.self),
    math.floor: _calls(aten.floor.default),
    math.ceil: _calls(aten.ceil.default),
    **{
        symbolic: _calls(getattr(aten, name).default)
        for name in _FUNCTIONS
        if (symbolic := getattr(torch, f"_sym_{name}", None)) is not None
    },
}
_OF_FLOATS = (operator.truediv, *(f for name in _FUNCTIONS if (f := getattr(torch, f"_sym_{name}", None)) is not None))

Consumer = Callable[[fx.Node, _Numbers], "fx.Node | None"]


def _beside(node: fx.Node, x: Any, number: Any, numbers: _Numbers) -> fx.Node | None:
    """Return ``number`` as a tensor of the dtype that PyTorch computes in beside ``x``."""
    found = numbers.of(number)
    if found is None or not isinstance(value_of(x), Tensor):
        return None
    return converted(node, found, torch.result_type(value_of(x), _EXAMPLES[type(value_of(number))]))


def _binary(onto: Any, *, reversed_: bool = False) -> Consumer:
    def rewrite(node: fx.Node, numbers: _Numbers) -> fx.Node | None:
        if len(node.args) != 2 or set(node.kwargs) - {"rounding_mode"}:
            return None
        a, b = node.args
        made = _beside(node, a, b, numbers), _beside(node, b, a, numbers)
        parts = (a, made[0]) if made[0] is not None else (made[1], b)
        if None in (parts[0], parts[1]):
            return None
        return emit(node, onto, *(parts[::-1] if reversed_ else parts), **node.kwargs)

    return rewrite


def _filled(node: fx.Node, numbers: _Numbers) -> fx.Node | None:
    result = value_of(node)
    number = numbers.of(node.args[0] if node.target is aten.scalar_tensor.default else node.args[1])
    if number is None or not all(isinstance(size, int) for size in result.shape):
        return None
    return emit(node, aten.expand.default, converted(node, number, result.dtype), list(result.shape))


def _masked_fill(node: fx.Node, numbers: _Numbers) -> fx.Node | None:
    x, mask, value = node.args
    number = numbers.of(value)
    return number and emit(node, aten.masked_fill.Tensor, x, mask, converted(node, number, value_of(x).dtype))


def _where(node: fx.Node, numbers: _Numbers) -> fx.Node | None:
    condition, a, b = node.args
    made = _beside(node, a, b, numbers), _beside(node, b, a, numbers)
    parts = (a, made[0]) if made[0] is not None else (made[1], b)
    return None if None in (parts[0], parts[1]) else emit(node, aten.where.self, condition, *parts)


def _clamp(node: fx.Node, numbers: _Numbers) -> fx.Node | None:
    """Clamp by tensors of the result's dtype: bounds that are constants are filled."""
    x, *bounds = node.args
    bounds += [node.kwargs.get(name) for name in ("min", "max")[len(bounds) :]]
    made = [numbers.of(each) for each in bounds]
    known = next((each for each in made if each is not None), None)
    unknown = [bound for bound, tensor in zip(bounds, made, strict=True) if tensor is None]
    if known is None or not all(isinstance(each, int | float | None) for each in unknown):
        return None
    dtype = value_of(node).dtype
    for place, (tensor, number) in enumerate(zip(made, bounds, strict=True)):
        if tensor is not None:
            made[place] = converted(node, tensor, dtype)
        elif number is not None:
            made[place] = emit(node, aten.full_like.default, known, number, dtype=dtype)
    return emit(node, aten.clamp.Tensor, converted(node, x, dtype), *made)


def _cond(node: fx.Node, numbers: _Numbers) -> None:
    if (number := numbers.of(node.args[0])) is not None:
        node.args = (number, *node.args[1:])


_BINARY = {
    **{
        getattr(getattr(aten, name), overload): _binary(getattr(aten, name).Tensor)
        for name in ("add", "sub", "mul", "div", "remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge")
        for overload in ("Tensor", "Scalar")
    },
    aten.floor_divide.default: _binary(aten.floor_divide.default),
    aten.floor_divide.Scalar: _binary(aten.floor_divide.default),
    aten.div.Tensor_mode: _binary(aten.div.Tensor_mode),
    aten.div.Scalar_mode: _binary(aten.div.Tensor_mode),
    aten.pow.Tensor_Scalar: _binary(aten.pow.Tensor_Tensor),
    aten.pow.Scalar: _binary(aten.pow.Tensor_Tensor),
    aten.rsub.Scalar: _binary(aten.sub.Tensor, reversed_=True),
    aten.rsub.Tensor: _binary(aten.sub.Tensor, reversed_=True),
}
_CONSUMERS: dict[Any, Consumer] = {
    **_BINARY,
    **dict.fromkeys((aten.full.default, aten.full_like.default, aten.scalar_tensor.default), _filled),
    aten.masked_fill.Scalar: _masked_fill,
    **dict.fromkeys((aten.where.ScalarOther, aten.where.ScalarSelf), _where),
    aten.clamp.default: _clamp,
    torch.ops.higher_order.cond: _cond,
}

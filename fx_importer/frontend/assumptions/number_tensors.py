"""Numbers that Python computes of tensors' values, computed on tensors instead."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from fx_importer.errors import ExportError
from fx_importer.frontend.assumptions.result_sizes import counted_size, source_of_size
from fx_importer.frontend.assumptions.value_questions import Question
from fx_importer.fx_graph.emission import emit, fake_mode_of_values, value_of
from fx_importer.fx_graph.operators import aten


class NumberTensors:
    """Computes what numbers before ``place`` compute, on tensors: exactly, in int64 and float64 where that matters."""

    def __init__(self, place: fx.Node):
        self._place = place
        self._known: dict[fx.Node, fx.Node] = {}
        self._question = Question("", 0, "", "")
        self._in_range: list[fx.Node] = []
        """Conditions that integers did not wrap."""
        self.counted: set[fx.Node] = set()
        """The calls whose results have sizes that were counted."""

    def checked(self, number: Any, question: Question) -> fx.Node:
        """Return the condition that ``number``, torch's assertion, is true as Python computes it."""
        self._question = question
        condition = self.answer(number, question)
        for flag in self._in_range:
            condition = self._emit(aten.logical_and.default, condition, flag)
        return condition

    def answer(self, number: Any, question: Question) -> fx.Node:
        """Return the condition that ``number``, torch's assertion, is true.

        Torch asserts ``x < 1 or x == 1`` where ``x > 1`` is false, which differs for NaN.
        """
        if question.answer == "False" and isinstance(number, fx.Node):
            strict = number
            if number.target is operator.or_:
                strict = next((node for node in number.all_input_nodes if node.target in _OPPOSITE), number)
            if strict.target in _OPPOSITE:
                relation = _OPPOSITE[strict.target][number.target is operator.or_]
                return self._emit(aten.logical_not.default, self._compared(relation, *strict.args))
        return self.condition(number)

    def tensor(self, number: Any) -> fx.Node:
        """Return a tensor of rank 0, int64 or float64."""
        return self._wide(number)

    def condition(self, number: Any) -> fx.Node:
        """Return a boolean tensor of rank 0."""
        tensor = self._tensor(number)
        if value_of(tensor).dtype is not torch.bool:
            tensor = self._emit(aten.ne.Scalar, tensor, 0)
        return tensor

    def _emit(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        # Outside of the fake mode, a tensor made of a symbolic size would make the size a number.
        values = [value_of(node) for node in self._place.graph.nodes]
        with fake_mode_of_values(self._place, values):
            return emit(self._place, target, *args, **kwargs)

    def _tensor(self, number: Any) -> fx.Node:
        if not isinstance(number, fx.Node):
            dtype = {bool: torch.bool, int: torch.int64}.get(type(number), torch.float64)
            return self._emit(aten.full.default, [], number, dtype=dtype)
        if number not in self._known:
            self._known[number] = self._computed(number)
        return self._known[number]

    def _computed(self, node: fx.Node) -> fx.Node:
        target, args = node.target, node.args
        if target in (aten.item.default, aten._local_scalar_dense.default):
            (tensor,) = args
            return self._emit(aten.reshape.default, tensor, []) if value_of(tensor).dim() else tensor  # type: ignore
        if target is torch.sym_ite:
            condition, then, otherwise = args
            if (then, otherwise) == (1, 0):
                return self._emit(aten._to_copy.default, self.condition(condition), dtype=torch.int64)
            return self._emit(aten.where.self, self.condition(condition), self._wide(then), self._wide(otherwise))
        if target in (torch.sym_not, operator.not_):
            return self._emit(aten.logical_not.default, self.condition(args[0]))
        if target in _COMPARISONS and len(args) == 2:
            return self._compared(_COMPARISONS[target], *args)
        if target in _LOGICAL and len(args) == 2:
            logical, bitwise = _LOGICAL[target]
            if isinstance(value_of(node), bool | torch.SymBool):
                return self._emit(logical, self.condition(args[0]), self.condition(args[1]))
            return self._emit(bitwise, *map(self._wide, args))
        if target in _ARITHMETIC and not node.kwargs:
            return self._arithmetic(target, *map(self._wide, args))
        if target in (torch.sym_float, torch.sym_int):
            dtype = torch.float64 if target is torch.sym_float else torch.int64
            return self._emit(aten._to_copy.default, self._tensor(args[0]), dtype=dtype)
        return self._of_number(node)

    def _arithmetic(self, target: Any, *operands: fx.Node) -> fx.Node:
        """Return the result in int64 or float64. Integers of Python do not wrap: a result out of range is no answer."""
        result = self._emit(_ARITHMETIC[target], *operands)
        if target in _GROWS and not value_of(result).dtype.is_floating_point:
            wide = [self._emit(aten._to_copy.default, operand, dtype=torch.float64) for operand in operands]
            size = self._emit(aten.abs.default, self._emit(_ARITHMETIC[target], *wide))
            self._in_range.append(self._emit(aten.lt.Scalar, size, 2.0**62))
        return result

    def _of_number(self, node: fx.Node) -> fx.Node:
        """Return the value of a number that only Python computes, such as a size.

        Raises:
            ExportError: if its value of the example inputs would be its value for all.
        """
        source = source_of_size(node)
        if source is not None and (count := counted_size(node, self._emit)) is not None:
            self.counted.add(source)
            return count
        if source is not None and source.target is aten.slice.Tensor and node.args[1] == source.args[1]:
            return self._length(source)
        value = value_of(node)
        known = value.node.maybe_as_int() if isinstance(value, torch.SymInt) else value
        if isinstance(known, int) and (source is not None or node.target is not aten.sym_size.int):
            raise _constant_check(self._question)
        if isinstance(value, bool | torch.SymBool):
            with self._place.graph.inserting_before(self._place):
                number = self._place.graph.call_function(torch.sym_ite, (node, 1, 0))
            number.meta["val"] = torch.sym_ite(value, 1, 0)
            return self._emit(aten.scalar_tensor.default, number, dtype=torch.int64)
        is_float = isinstance(value, float | torch.SymFloat)
        return self._emit(aten.scalar_tensor.default, node, dtype=torch.float64 if is_float else torch.int64)

    def _length(self, call: fx.Node) -> fx.Node:
        """Return the number of elements of a slice whose bounds depend on values."""
        defaults: tuple[Any, ...] = (None, None, 1)
        x, axis, start, end, step = (*call.args, *defaults[len(call.args) - 2 :])
        assert isinstance(axis, int)
        assert isinstance(step, int)
        size = value_of(x).shape[axis]
        size = self._wide(self._emit(aten.sym_size.int, x, axis) if isinstance(size, torch.SymInt) else size)
        bounds: list[fx.Node] = []
        for number, default in ((start, 0), (end, size)):
            bound = self._wide(default if number is None else number)
            from_end = self._emit(aten.add.Tensor, bound, size)
            bound = self._emit(aten.where.self, self._emit(aten.lt.Scalar, bound, 0), from_end, bound)
            bound = self._emit(aten.minimum.default, self._emit(aten.clamp_min.default, bound, 0), size)
            bounds.append(bound)
        length = self._emit(aten.clamp_min.default, self._emit(aten.sub.Tensor, *reversed(bounds)), 0)
        return self._emit(aten.floor_divide.default, self._emit(aten.add.Scalar, length, step - 1), self._wide(step))

    def _wide(self, number: Any) -> Any:
        """Return a number as a tensor of the dtype that Python computes in; a constant is returned unchanged."""
        tensor = self._tensor(number)
        dtype = value_of(tensor).dtype
        wide = torch.float64 if dtype.is_floating_point else torch.int64
        return tensor if dtype is wide else self._emit(aten._to_copy.default, tensor, dtype=wide)

    def _compared(self, relation: str, a: Any, b: Any) -> fx.Node:
        if not isinstance(a, fx.Node):
            a, b, relation = b, a, _MIRRORED.get(relation, relation)
        if isinstance(b, fx.Node):
            return self._emit(getattr(aten, relation).Tensor, self._wide(a), self._wide(b))
        a, b = _without_summand(a, b)
        tensor = self._tensor(a)
        dtype = value_of(tensor).dtype
        if dtype.is_floating_point and dtype.itemsize == 1:  # torch compares none of eight bits
            tensor, dtype = self._emit(aten._to_copy.default, tensor, dtype=torch.float32), torch.float32
        if dtype is torch.bool:
            if relation in ("eq", "ne") and b in (0, 1):
                return tensor if (relation == "eq") == bool(b) else self._emit(aten.logical_not.default, tensor)
            tensor = self._wide(a)
        elif not math.isnan(b):
            bound = _rounded(b, dtype)
            if bound != b:
                if relation in ("eq", "ne"):
                    return self._tensor(relation == "ne")
                relation, b = _OF_ROUNDED[relation][bound > b], bound
            elif not dtype.is_floating_point:
                b = bound
        elif not dtype.is_floating_point:
            tensor = self._wide(a)
        return self._emit(getattr(aten, relation).Scalar, tensor, b)


def _constant_check(question: Question) -> ExportError:
    """Return the error for a number whose value of the example inputs the program would check, and no other."""
    return ExportError(
        f"the program cannot check what its capture assumes, {question.text}: this size depends on values, and no "
        "rule counts it. Accepted are sizes of results of nonzero, unique, bincount, repeat_interleave and a mask. "
        "Ask a tensor instead, (n > 0).sum() > 2",
        f"{question.file}:{question.line}" if question.file else "",
    )


def _without_summand(number: Any, limit: Any) -> tuple[Any, Any]:
    """Return what is compared, ``x + c`` with 0 or integers, as ``x`` and a limit: torch writes ``x < -c`` so.

    The sign of a sum of floats is exact.
    """
    if isinstance(number, fx.Node) and number.target is operator.add and len(number.all_input_nodes) == 1:
        constants = [term for term in number.args if isinstance(term, int | float)]
        (term,) = number.all_input_nodes
        whole = isinstance(value_of(term), int | torch.SymInt) and isinstance(limit, int)
        if len(constants) == 1 and (limit == 0 or (whole and isinstance(constants[0], int))):
            return term, limit - constants[0]
    return number, limit


def _rounded(number: float, dtype: torch.dtype) -> float:
    """Return ``number`` as a value of ``dtype``, next to it: no other value of ``dtype`` is between the two."""
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return limits.min if number < limits.min else limits.max if number > limits.max else math.floor(number)
    return float(torch.tensor(float(number), dtype=torch.float64).to(dtype))


_COMPARISONS: Mapping[Any, str] = {
    getattr(operator, relation): relation for relation in ("eq", "ne", "lt", "le", "gt", "ge")
}
_OPPOSITE: Mapping[Any, tuple[str, str]] = {
    operator.lt: ("ge", "gt"),
    operator.le: ("gt", "gt"),
    operator.gt: ("le", "lt"),
    operator.ge: ("lt", "lt"),
}
"""The opposite of a comparison, and of the comparison or equality."""
_OF_ROUNDED = {"gt": ("gt", "ge"), "ge": ("gt", "ge"), "lt": ("le", "lt"), "le": ("le", "lt")}
"""The comparison with a number that was rounded down, and up, which is that with the number itself."""
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_LOGICAL: Mapping[Any, Any] = {
    operator.and_: (aten.logical_and.default, aten.bitwise_and.Tensor),
    operator.or_: (aten.logical_or.default, aten.bitwise_or.Tensor),
}
"""The operators of booleans, and of integers."""
_GROWS = (operator.add, operator.sub, operator.mul)
"""Arithmetic whose result may not be an int64."""
_ARITHMETIC: Mapping[Any, Any] = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.neg: aten.neg.default,
    operator.floordiv: aten.floor_divide.default,
    operator.mod: aten.remainder.Tensor,
    operator.truediv: aten.div.Tensor,
    torch.sym_max: aten.maximum.default,
    torch.sym_min: aten.minimum.default,
}
"""Numbers in Python, and the operators that compute the same on tensors of int64 and float64."""

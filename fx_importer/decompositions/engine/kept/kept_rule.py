"""The rule of an operator that a user keeps: the parts of our own rule that emit the operator itself, and a check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from fx_importer.decompositions.engine.kept.conditions import has_dynamic_sizes, tensors_of
from fx_importer.decompositions.engine.kept.fault_table import Fault, Severity, fault_of, fault_table, is_measured
from fx_importer.decompositions.engine.kept_operators import emissions, is_kept, keep, note_emission
from fx_importer.decompositions.engine.table import DecompositionRule, LayeredRule, name_of_rule
from fx_importer.errors import FxImporterError
from fx_importer.fx_graph.operators import aten
from fx_importer.output_types import OutputType

_NOTES: ContextVar[dict[str, Severity | None] | None] = ContextVar("notes_of_kept_operators", default=None)


class WrongWhenKept(FxImporterError):
    """A kept operator whose C++ lowering is wrong for a call. `decompose` raises `UnsupportedProgramError` for it."""

    def __init__(self, operator: OpOverload, sentence: str):
        self.operator, self.sentence = operator, sentence
        self.node: fx.Node | None = None
        super().__init__(sentence)


@contextmanager
def notes() -> Iterator[dict[str, Severity | None]]:
    """Collect sentences about kept operators in the body: how far each says that results differ from eager's."""
    collected: dict[str, Severity | None] = {}
    token = _NOTES.set(collected)
    try:
        yield collected
    finally:
        _NOTES.reset(token)


def check_kept(
    operator: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    output_types: Sequence[OutputType],
    option: str,
    *,
    refuses: bool,
) -> None:
    """Look a call of ``operator``, which ``option`` leaves to the C++ lowering, up in the table of its faults.

    ``output_types`` are the requested one and the fallbacks: the first that takes the operator counts.

    Raises:
        WrongWhenKept: if the lowering is wrong, and ``refuses``. Otherwise a sentence is noted.
    """
    name = str(operator)
    output_type = next((output_type for output_type in output_types if is_measured(name, output_type)), output_types[0])
    fault, kind = fault_of(operator, args, kwargs, output_type), output_type.value
    collected = _NOTES.get()
    if fault is None:
        if collected is not None and not is_measured(name, output_type):
            collected[f"{option} leaves {name} to its C++ lowering to {kind}, if it has one: none was measured"] = None
        return
    sentence = f"{option} leaves {name} to its C++ lowering to {kind}: {described(fault)}"
    if refuses and fault.severity is Severity.WRONG:
        raise WrongWhenKept(operator, sentence)
    if collected is not None:
        collected[sentence] = fault.severity


def described(fault: Fault) -> str:
    """Return a row of the table as the end of a sentence."""
    return f"for {fault.conditions.replace(' ', ', ')}, {fault.what}"


@dataclass(frozen=True)
class KeptRule:
    """The rule of an operator that ``option`` keeps.

    Layers of our own rule that emit the operator, or another overload of it, are applied: they call it with arguments
    for which the C++ lowering is right, such as nonnegative indices, or correct its result. Layers that compute
    with other operators are not.
    """

    operator: OpOverload
    own: DecompositionRule | None
    """Our rule; None where the operator stays as it is."""
    output_types: tuple[OutputType, ...]
    """The requested one, and the fallbacks."""
    option: str
    """Names the option in sentences: ``keep=``."""
    refuses: bool
    """Whether a call that is lowered wrongly is refused. Otherwise there is a warning."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the operator, corrected; ``NotImplemented`` where it stays as it is.

        Raises:
            WrongWhenKept: as `check_kept`.
        """
        note_emission(self.operator)
        if is_kept(self.operator):
            return NotImplemented
        for layer in _layers(self.own):
            if not name_of_rule(layer).startswith("fx_importer."):
                continue  # torch's own do not emit their operator
            with emissions() as emitted:
                result = layer(*args, **kwargs)
            if result is not NotImplemented and self.operator.overloadpacket in emitted:
                self._note_limit(args)
                return result
        if (limit := self._limit(args, kwargs)) is not None:
            name, kind = str(self.operator), self.output_types[0].value
            raise WrongWhenKept(
                self.operator, f"{self.option} leaves {name} to its C++ lowering to {kind}, which {limit}"
            )
        if self.operator in _WITHOUT_BROADCASTING and len({str(x.shape) for x in tensors_of(args, {})}) > 1:
            with keep(self.operator):
                return self.operator(*_broadcast(args), **kwargs)
        if self.operator is aten.instance_norm.default and None in args[1:3]:  # ends the process
            x, weight, bias, *rest = args
            weight, bias = (
                x.new_full((x.shape[1],), number) if parameter is None else parameter
                for parameter, number in ((weight, 1.0), (bias, 0.0))
            )
            return self.operator(x, weight, bias, *rest, **kwargs)
        if self.output_types[0].value in fault_table() and _overflows(self.operator, args, kwargs):
            args, kwargs = _converted((tuple(args), dict(kwargs)), torch.float16, torch.float32)
            results = self.operator(*args, **kwargs)
            return _converted(results, torch.float32, torch.float16)
        if tensors_of(args, kwargs):
            check_kept(self.operator, args, kwargs, self.output_types, self.option, refuses=self.refuses)
        return NotImplemented

    def _limit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return why the C++ lowering is wrong or ends the process for a call in any dtype; None for other calls."""
        if (self.output_types[0], self.operator) in _WITHOUT_END and args[0].dim():
            return "does not end for a dynamic axis" if isinstance(args[0].shape[args[1]], SymInt) else None
        if self.operator is aten.repeat.default and 0 in [count for count in args[1] if type(count) is int]:
            return "has other sizes for no repetitions of dynamic axes" if has_dynamic_sizes(args, kwargs) else None
        if self.operator is aten.roll.default and any(map(_may_exceed, args[1], _sizes(args))):
            return "reads other elements where a shift is larger than a dynamic size"
        circular = self.operator is aten.pad.default and (*args[2:3], kwargs.get("mode"))[0] == "circular"
        if circular and 0 not in [size for size in args[0].shape if isinstance(size, int)]:
            return "has no circular mode"
        return None

    def _note_limit(self, args: Sequence[Any]) -> None:
        """Note what no correction of arguments or results can change.

        Raises:
            WrongWhenKept: for a mask: as positions, elements that it does not select share one.
        """
        limit, collected = _LIMITS.get((self.output_types[0], str(self.operator))), _NOTES.get()
        indices = tensors_of(args[1:2], {})
        if limit is None or not any(x.numel() != 1 for x in indices):
            return
        name, kind = str(self.operator), self.output_types[0].value
        sentence = f"{self.option} leaves {name} to its C++ lowering to {kind}: {limit}"
        severity = Severity.WRONG if any(x.dtype is torch.bool for x in indices) else Severity.INEXACT
        if self.refuses and severity is Severity.WRONG:
            raise WrongWhenKept(self.operator, sentence)
        if collected is not None:
            collected[sentence] = severity


def _sizes(args: Sequence[Any]) -> list[Any]:
    """Return the sizes of the axes, or of all elements, that ``roll`` shifts along."""
    return [args[0].shape[axis] for axis in args[2]] if args[2:] and args[2] and args[0].dim() else [args[0].numel()]


def _may_exceed(shift: Any, size: Any) -> bool:
    return isinstance(size, SymInt) and not (isinstance(shift, int) and abs(shift) <= 1)


_WITHOUT_BROADCASTING = (
    *(aten.fmax.default, aten.fmin.default, aten.lerp.Tensor),
    *(aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor),
)
"""Operators whose C++ lowerings emit invalid operations, or end the process, for operands of different ranks."""


_SCALED = frozenset((aten.addmm, aten.baddbmm, aten.addbmm, aten.addmv))
_OVERFLOWING = frozenset(
    (
        *(aten.std, aten.var_mean, aten.frobenius_norm, aten.addcdiv, aten.mse_loss, aten.l1_loss),
        *(aten.layer_norm, aten.native_layer_norm, aten.group_norm, aten.native_group_norm, aten.instance_norm),
    )
)
"""Operators whose C++ lowerings compute in float16 what eager computes in float32, and whose intermediate values are
larger than their results: squares and sums."""


def _overflows(operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether float16 may not hold an intermediate value, or a product before ``alpha`` scales it."""
    packet = operator.overloadpacket
    operands = tensors_of(args, kwargs)
    if not operands or operands[0].dtype is not torch.float16:
        return False
    return packet in _OVERFLOWING or (packet in _SCALED and kwargs.get("alpha", 1) != 1)


def _converted(values: Any, old: torch.dtype, new: torch.dtype) -> Any:
    return pytree.tree_map_only(Tensor, lambda x: x.to(new) if x.dtype is old else x, values)


def _broadcast(args: Sequence[Any]) -> list[Any]:
    """Return arguments with tensors expanded to their common shape."""
    tensors = iter(torch.broadcast_tensors(*(arg for arg in args if isinstance(arg, Tensor))))
    return [next(tensors) if isinstance(arg, Tensor) else arg for arg in args]


_WITHOUT_END = frozenset(((OutputType.TOSA, aten.unfold.default),))
"""Output types and operators whose C++ lowering takes all memory where the second argument is a dynamic axis."""
_LIMITS = {
    (OutputType.TOSA, "aten.index_put.default"): (
        "tosa.scatter writes each row once at most, so repeated indices are not valid, where eager keeps the last write"
    ),
}
"""By output type and operator, what differs from eager after a correction."""


def _layers(rule: DecompositionRule | None) -> Iterator[Callable[..., Any]]:
    if isinstance(rule, LayeredRule):
        yield from _layers(rule.first)
        yield from _layers(rule.otherwise)
    elif rule is not None:
        yield rule

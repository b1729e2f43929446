"""Suggestions after a failed lowering: each was tried with the whole program before it is made."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import SymInt, Tensor
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from fx_importer.compiler.compilation import Call
from fx_importer.diagnostics import progress
from fx_importer.diagnostics.causes import Cause
from fx_importer.errors import ExportError
from fx_importer.frontend.example_inputs import state_of
from fx_importer.fx_graph.operators import operator_named
from fx_importer.options import Options, Unsupported
from fx_importer.output_types import OutputType
from fx_importer.probing import Prober
from fx_importer.targets import EXECUTABLE


@dataclass(frozen=True)
class Change:
    """Other options or inputs of a lowering that failed."""

    text: str
    """What is changed, as a suggestion."""
    options: Options
    calls: Mapping[str, Call] | None = None
    """Models to export anew, with these inputs; by default the exported programs are lowered again."""


Lowers = Callable[[Change], bool]
"""Whether the program lowers with a change."""

_WIDE = {torch.float64: torch.float32, torch.complex128: torch.complex64}
_HALF = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
MAX_BYTES = 1 << 28
"""The most bytes of weights that are copied for a trial."""


class Advisor:
    """Tries changes of a failed lowering, within a time limit: no trial begins that may take longer than is left."""

    def __init__(self, calls: Mapping[str, Call], options: Options, lowers: Lowers, prober: Callable[[], Prober]):
        """``lowers`` tries a change of the options with which ``calls`` failed, in the process of ``prober``."""
        self._calls, self._options, self._lowers = calls, options, lowers
        self.prober = prober

    def suggestions(self, causes: Sequence[Cause], seconds: float, *, dynamic: bool) -> tuple[str, ...]:
        """Return the changes with which the whole program lowers, ``causes`` being the operators that fail alone.

        ``dynamic`` is whether inputs have dynamic sizes.
        """
        trials = _Trials(self._lowers, seconds)
        operators = dict.fromkeys(cause.op for cause in causes)
        made = [
            *filter(trials, self._decomposing(operators)),
            *filter(trials, self._with_other_inputs(dynamic)),
        ]
        texts = [change.text for change in made]
        others = [kind for kind in EXECUTABLE if kind is not self._options.output_type]
        supporting = [kind for kind in others if trials(Change("", replace(self._options, output_type=kind)))]
        if supporting:
            texts.append(f"{_alternatives(supporting)}, which supports it")
        elif self._options.lowering.pipeline is not None:
            lowering = replace(self._options.lowering, pipeline=None)
            changes = {kind: replace(self._options, output_type=kind, lowering=lowering) for kind in others}
            without = [kind for kind, options in changes.items() if trials(Change("", options))]
            texts += [f"{_alternatives(without)}, without pipeline="] if without else []
        texts += next(([c.text] for c in self._with_fallback(len(operators), supporting or others) if trials(c)), [])
        texts += [change.text for change in self._replacing(operators, causes) if trials(change)]
        return tuple(texts)

    def advised(self, error: ExportError, seconds: float) -> ExportError:
        """Return ``error`` with the changes with which the model exports and lowers."""
        trials = _Trials(self._lowers, seconds)
        lines = [str(error)]
        (name, (f, _, _)), *_ = self._calls.items()  # several calls are exported programs, which do not fail
        for change in error.changes:
            export = replace(self._options.export, dynamic_shapes=change.dynamic_shapes)
            calls = {name: (f, change.args, change.kwargs)}
            if trials(Change(change.text, replace(self._options, export=export), calls)):
                lines.append(f"  try: {change.text}")
        return ExportError("\n".join(lines), error.where)

    def _decomposing(self, operators: Mapping[str, None]) -> Iterator[Change]:
        """Yield the options without those that keep ``operators`` from being decomposed."""
        decompositions, lowering = self._options.decompositions, self._options.lowering
        for option, names in (("keep", decompositions.keep), ("backend_legal_ops", lowering.backend_legal_ops)):
            kept = [name for name in names if any(f"{op}.".startswith(f"{name}.") for op in operators)]
            if not kept:
                continue
            left = tuple(name for name in names if name not in kept)
            options = (
                replace(self._options, decompositions=replace(decompositions, keep=left))
                if option == "keep"
                else replace(self._options, lowering=replace(lowering, backend_legal_ops=left))
            )
            listed = repr(kept[0]) if len(kept) == 1 else str(kept)
            yield Change(f"without {option}={listed}: {_count(kept, 'it has a decomposition', 'they have')}", options)
        if decompositions.table is not None:
            options = replace(self._options, decompositions=replace(decompositions, table=None))
            yield Change("without decomposition_table: the output type's own decomposes it", options)
        if lowering.narrow_integers:
            options = replace(self._options, lowering=replace(lowering, narrow_integers=False))
            yield Change("without narrow_integers: TOSA's extension EXT-INT64 has integers of 64 bits", options)

    def _with_other_inputs(self, dynamic: bool) -> Iterator[Change]:
        """Yield the models with narrower or wider floating-point numbers, and with static sizes."""
        for dtypes in (_WIDE, _HALF):
            changes = dict.fromkeys(
                dtype for call in self._calls.values() for dtype in _dtypes_of(call) if dtype in dtypes
            )
            calls = {name: _with_dtypes(call, dtypes) for name, call in self._calls.items()} if changes else {}
            if changes and all(calls.values()):
                new, old = (
                    " and ".join(dict.fromkeys(map(_name, names))) for names in (map(dtypes.get, changes), changes)
                )
                yield Change(f"{new} instead of {old}", self._options, calls)  # type: ignore[arg-type]
        static = {name: _with_static_sizes(call) for name, call in self._calls.items()}
        if dynamic and all(static.values()):
            options = replace(self._options, export=replace(self._options.export, dynamic_shapes=None))
            yield Change("static sizes, without dynamic_shapes", options, static)  # type: ignore[arg-type]

    def _with_fallback(self, operators: int, output_types: Sequence[OutputType]) -> Iterator[Change]:
        if self._options.lowering.fallback or not operators:
            return
        only = _count(operators, "only this operator is lowered to it", "only these operators are")
        for kind in output_types:
            lowering = replace(self._options.lowering, fallback=(kind,))
            yield Change(f"fallback={kind.value!r}: {only}", replace(self._options, lowering=lowering))

    def _replacing(self, operators: Mapping[str, None], causes: Sequence[Cause]) -> Iterator[Change]:
        """Yield the options with which others compute ``operators``: PyTorch, or decompositions of the user's.

        A decomposition computes the same numbers, so it is left out where their range is the cause.
        """
        lowering, decompositions = self._options.lowering, self._options.decompositions
        if lowering.unsupported is not Unsupported.OUTLINE and operators:
            what = _count(
                operators,
                "this operator, as a function that the module declares",
                "these operators, as functions that the module declares",
            )
            yield Change(
                f"unsupported='outline': PyTorch computes {what}",
                replace(self._options, lowering=replace(lowering, unsupported=Unsupported.OUTLINE)),
            )
        overloads = {name: operator_named(name) for name in operators}
        ranges = any(cause.reason.startswith("narrow_integers:") for cause in causes)
        if operators and not ranges and all(isinstance(overload, OpOverload) for overload in overloads.values()):
            rules = {overload: _zeros_instead_of(overload) for overload in overloads.values()}
            listed = ", ".join(f"torch.ops.{name}: function" for name in operators)
            own = _count(operators, "a decomposition", "decompositions")
            extra = replace(decompositions, extra={**decompositions.extra, **rules})
            yield Change(f"{own} of your own, extra={{{listed}}}", replace(self._options, decompositions=extra))


class _Trials:
    """Tries changes one after another until the time is up."""

    def __init__(self, lowers: Lowers, seconds: float):
        self._lowers, self._end = lowers, time.monotonic() + seconds
        self._longest = 0.0

    def __call__(self, change: Change) -> bool:
        start = time.monotonic()
        if start + self._longest >= self._end:
            return False
        progress.enter(f"trying {change.text or change.options.output_type.value}")
        lowers = self._lowers(change)
        self._longest = max(self._longest, time.monotonic() - start)
        return lowers


def _alternatives(output_types: Sequence[OutputType]) -> str:
    return " or ".join(f"output_type={kind.value!r}" for kind in output_types)


def _count(things: Any, one: str, several: str) -> str:
    return one if (things if isinstance(things, int) else len(things)) == 1 else several


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _tensors_of(call: Call) -> Iterator[Tensor]:
    f, args, kwargs = call
    if isinstance(f, ExportedProgram):
        args, kwargs = f.example_inputs or ((), {})
        yield from f.state_dict.values()
    elif isinstance(f, torch.nn.Module):
        yield from state_of(f).values()
    yield from (leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))


def bytes_of(calls: Iterable[Call]) -> int:
    """Return the size of the weights and inputs of models."""
    return sum(tensor.numel() * tensor.element_size() for call in calls for tensor in _tensors_of(call))


def _dtypes_of(call: Call) -> dict[torch.dtype, None]:
    return dict.fromkeys(tensor.dtype for tensor in _tensors_of(call))


def _with_dtypes(call: Call, dtypes: Mapping[torch.dtype, torch.dtype]) -> Call | None:
    """Return a copy of a model and its inputs in other dtypes; None if it cannot be copied, or is too large."""
    f, args, kwargs = call
    if bytes_of((call,)) > MAX_BYTES:
        return None

    def converted(value: Any) -> Any:
        return value.to(dtypes.get(value.dtype, value.dtype)) if isinstance(value, Tensor) else value

    if isinstance(f, ExportedProgram):
        if f.example_inputs is None:
            return None
        args, kwargs = f.example_inputs
        f = f.module()
    if isinstance(f, torch.nn.Module):
        try:
            f = copy.deepcopy(f)
        except Exception:  # of a module's own
            return None
        for tensor in state_of(f).values():
            tensor.data = converted(tensor.data)
    args, kwargs = pytree.tree_map(converted, (tuple(args), dict(kwargs)))
    return f, args, kwargs


def _with_static_sizes(call: Call) -> Call | None:
    """Return a model to export without dynamic sizes; None if an exported program has no inputs for that."""
    f, args, kwargs = call
    if not isinstance(f, ExportedProgram):
        return f, args, kwargs
    return None if f.example_inputs is None else (f.module(), *f.example_inputs)


def _zeros_instead_of(overload: Any) -> Callable[..., Any]:
    """Return a decomposition that only has the types of the results: zeros. It raises for sizes that no input has."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            results = overload(*args, **kwargs)
        sizes = {
            str(size): (leaf, axis)
            for leaf in pytree.tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor)
            for axis, size in enumerate(leaf.shape)
        }

        def zeros(result: Tensor) -> Tensor:
            places = [sizes[str(size)] if isinstance(size, SymInt) else size for size in result.shape]
            shape = [place if isinstance(place, int) else place[0].shape[place[1]] for place in places]
            return torch.zeros(shape, dtype=result.dtype)

        return pytree.tree_map_only(Tensor, zeros, results)

    return rule

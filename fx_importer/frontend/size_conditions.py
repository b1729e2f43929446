"""Conditions on sizes that the Python code of a model asks for while torch.export traces it.

torch.export assumes sizes of at least 2, and records no guard for a condition that this assumption decides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from textwrap import shorten
from types import FrameType
from typing import Any

import sympy
import torch
from torch._guards import ShapeGuard, TracingContext
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, uninteresting_files

from fx_importer.diagnostics.mlir_diagnostics import is_torch
from fx_importer.diagnostics.source_lines import source_line
from fx_importer.frontend.torch_patches import (
    DEFERRED_ASSERTION,
    FIXED_SIZE,
    GUARD_SOURCES,
    SIZE_COMPARISONS,
    SIZE_CONDITION,
    Patch,
    patched,
)
from fx_importer.frontend.user_calls import UserCall, call_of_user
from fx_importer.symbolic.guards import plain

_OF_PYTHON = ("torch/fx/experimental/symbolic_shapes.py", "torch/__init__.py")
_ASKS = (
    *_OF_PYTHON,
    *("torch/fx/experimental/sym_node.py", "torch/_export/non_strict_utils.py", "torch/overrides.py"),
)
"""The files of torch through which code asks for the truth of a condition on sizes; first those that only Python calls.
"""

_MODEL_CODE = ("torch/nn/", "torch/functional.py", "torch/_dynamo/variables/", "torch/_dynamo/symbolic_convert.py")
"""The files of torch that run as part of a model, or on its behalf: they decide results, where an operator's own
conditions mostly decide strides."""

_RELATIONS = {
    "__eq__": sympy.Eq,
    "__ne__": sympy.Ne,
    "__lt__": sympy.Lt,
    "__le__": sympy.Le,
    "__gt__": sympy.Gt,
    "__ge__": sympy.Ge,
    "__sym_max__": sympy.Max,
    "__sym_min__": sympy.Min,
}
"""What a method of SymInt computes."""

_MAX_LINE = 80


@dataclass(frozen=True)
class FixedSize:
    """A dynamic size that tracing fixed to a number."""

    value: int
    call: UserCall
    """Where the model did that."""


@dataclass
class SizeConditions:
    """Conditions on sizes that Python code of a model has asked for during an export."""

    lines: dict[sympy.Basic, str] = field(default_factory=dict[sympy.Basic, str])
    """What was true of the sizes, as `plain` conditions, and the source line."""
    fixed: dict[str, FixedSize] = field(default_factory=dict[str, FixedSize])
    """Sizes that tracing fixed to a number, by torch's name of the size: ``L['x'].size()[0]``."""
    deferred: list[ShapeGuard] = field(default_factory=list[ShapeGuard])
    """What torch.export would assert of sizes of inputs in the program; callers check it before the call instead."""

    def recorded(self, checks_sizes: bool) -> AbstractContextManager[None]:
        """Record the conditions of what torch traces in the body; with ``checks_sizes``, what it defers too."""
        evaluate = SymNode.guard_bool

        def guard_bool(node: Any, file: str, line: int) -> bool:
            answer = evaluate(node, file, line)
            if node.expr.free_symbols and (where := _place_of_question(sys._getframe(1))) is not None:
                self._add(plain(node.expr), answer, where)
            return answer

        replace = FIXED_SIZE.resolved().read()

        def set_replacement(environment: ShapeEnv, symbol: sympy.Symbol, value: Any, why: str) -> None:
            replace(environment, symbol, value, why)
            if isinstance(value, sympy.Integer) and environment.replacements.get(symbol) == value:
                self._fix(environment, int(value), sys._getframe(1))

        defer = DEFERRED_ASSERTION.resolved().read()

        def defer_unless_of_inputs(environment: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
            result = defer(environment, *args, **kwargs)
            for assertions in environment.deferred_runtime_asserts.values():
                guards = [
                    assertion.expr
                    for assertion in assertions
                    if assertion.expr.free_symbols <= set(environment.var_to_sources)
                ]
                assertions[:] = [assertion for assertion in assertions if assertion.expr not in guards]
                self.deferred += [ShapeGuard(guard, environment._get_sloc(), size_oblivious=False) for guard in guards]
            return result

        files = uninteresting_files() | {__file__}
        return patched(
            {SIZE_CONDITION: guard_bool, FIXED_SIZE: set_replacement, GUARD_SOURCES: lambda: files}
            | {patch: self._compared(patch) for patch in SIZE_COMPARISONS}
            | ({DEFERRED_ASSERTION: defer_unless_of_inputs} if checks_sizes else {})
        )

    def _fix(self, environment: ShapeEnv, value: int, frame: FrameType) -> None:
        call = call_of_user(frame)
        for other, sources in environment.var_to_sources.items():
            if environment.replace(other) == value:  # also of a size that equals this one
                for source in sources:
                    self.fixed.setdefault(source.name, FixedSize(value, call))

    def _compared(self, patch: Patch) -> Callable[[torch.SymInt, Any], Any]:
        """Return a comparison that records what SymPy knows of every positive number, such as ``n > 0``.

        The larger and the smaller one of two sizes are comparisons too: ``max(n, 1)`` is ``n``.
        """
        compare, relation = getattr(torch.SymInt, patch.name), _RELATIONS[patch.name]

        def compared(size: torch.SymInt, other: Any) -> Any:
            answer = compare(size, other)
            known = not (isinstance(answer, torch.SymBool) and answer.node.expr.free_symbols)
            if known and answer is not NotImplemented and (where := _place_of_question(sys._getframe(1), True)):
                condition = relation(plain(size.node.expr), plain(_expression(other)))
                if isinstance(answer, torch.SymInt):
                    condition, answer_holds = sympy.Eq(condition, plain(answer.node.expr)), True
                else:
                    answer_holds = bool(answer)
                self._add(condition, answer_holds, where)
            return answer

        return compared

    def _add(self, condition: sympy.Basic, answer: bool, where: str) -> None:
        if condition.free_symbols:
            self.lines.setdefault(condition if answer else sympy.Not(condition), where)


def _expression(number: Any) -> sympy.Basic:
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.sympify(number)


def _place_of_question(frame: FrameType | None, asked: bool = False) -> str | None:
    """Return the source line that asks for a condition, if the code of a model does; ``frame`` is that of the caller.

    An operator's own condition, asked in C++, comes without a frame of `_OF_PYTHON` between. ``asked`` is whether only
    Python code can be the caller.
    """
    while frame is not None and (
        frame.f_code.co_filename.endswith(_ASKS) or frame.f_code.co_name == "__torch_function__"
    ):
        asked |= frame.f_code.co_name == "bool_" or frame.f_code.co_filename.endswith(_OF_PYTHON)
        frame = frame.f_back
    if frame is None or not asked:
        return None
    file = frame.f_code.co_filename
    if is_torch(file) and not any(part in file for part in _MODEL_CODE):
        return None
    if "torch/_dynamo/" in file:
        return next(
            (
                described_line(summary.filename, summary.lineno or 0)
                for summary in reversed(TracingContext.extract_stack())
            ),
            "",
        )
    while frame.f_back is not None and is_torch(frame.f_code.co_filename):
        frame = frame.f_back
    return described_line(frame.f_code.co_filename, frame.f_lineno)


def described_line(file: str, line: int) -> str:
    source = source_line(file, line)
    return f"{file}:{line}" + (f" ({shorten(source, _MAX_LINE, placeholder=' ...')})" if source else "")

"""Questions that the Python code of a model asks of the values of tensors while torch.export traces it.

With `FakeTensor`'s real tensors, torch answers with the values of the example inputs, and adds an assertion of each
answer to the program. The functions here record where each question is asked.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from textwrap import shorten
from types import FrameType
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from fx_importer.diagnostics.source_lines import source_line, source_lines
from fx_importer.errors import OTHERWISE
from fx_importer.frontend.assumptions.packed_sequences import PackedSequences
from fx_importer.frontend.torch_patches import (
    DEFERRED_ASSERTION,
    HIGHER_ORDER_CALL,
    REAL_CHECK,
    REAL_CLONE,
    REAL_COPY,
    REAL_TENSOR_LOG,
    REAL_TENSORS,
    SIGN_BIT,
    SIZE_CONDITION,
    patched,
)
from fx_importer.frontend.user_calls import frame_of_user

_MAX_EXPRESSION = 120
_ASKS = (
    *("torch/fx/experimental/symbolic_shapes.py", "torch/fx/experimental/sym_node.py", "torch/__init__.py"),
    *("torch/fx/experimental/recording.py", "torch/fx/experimental/proxy_tensor.py"),
    *("torch/_export/non_strict_utils.py", "torch/overrides.py", "torch/_tensor.py"),
)
"""The files of torch between a question of the model's code and torch's answer."""


_MODEL_CODE = ("/torch/distributions/", "/torch/nn/")
"""The files of torch that run as part of a model."""


@dataclass(frozen=True)
class Question:
    """A question of the model's code, and the answer of the example inputs."""

    file: str
    line: int
    expression: str
    """The Python expression that asks; the whole line where Python does not know the expression."""
    answer: str
    otherwise: str = ""
    """The exception that the model raises for other answers, if the question decides only that."""

    @property
    def text(self) -> str:
        """The expression, its value and the place."""
        where = f", at {self.file}:{self.line}" if self.file else ""
        raised = f" {OTHERWISE} {self.otherwise})" if self.otherwise else ""
        return f"`{self.expression}` is {self.answer}{where}{raised}"


@dataclass
class ValueQuestions:
    """The questions of an export."""

    asked: dict[tuple[str, str], Question] = field(default_factory=dict[tuple[str, str], Question])
    """By the text of torch's expression and of the answer."""
    environments: list[tuple[Any, Question]] = field(default_factory=list[tuple[Any, Question]])
    """The environments of symbolic sizes that asked, each with its first question."""

    def rounded(self) -> list[Question]:
        """Return the questions about numbers that Python rounds or converts, which torch may fail to assert."""
        return [question for (expression, _), question in self.asked.items() if _ROUNDS.search(expression)]

    def answered(self, integers: bool = False) -> AbstractContextManager[None]:
        """Answer and record the questions of code that torch traces in the body; ``integers``: all that it reads."""

        def log(environment: Any, expression: sympy.Basic, answer: sympy.Basic) -> None:
            key = (str(expression), str(answer))
            if key not in self.asked:
                self.asked[key] = _question(sys._getframe(1), expression, answer)
            if all(other is not environment for other, _ in self.environments):
                self.environments.append((environment, _question(sys._getframe(1), expression, answer)))

        evaluate = SIZE_CONDITION.resolved().read()

        def guard_bool(node: Any, file: str, line: int) -> bool:
            try:
                return evaluate(node, file, line)
            except TypeError as error:
                if "NaN" not in str(error) or not isinstance(node.expr, _ORDERS):
                    raise
            # The number of the example is NaN, with which SymPy compares nothing.
            log(node.shape_env, node.expr, sympy.false)
            node.shape_env.guard_or_defer_runtime_assert(
                sympy.Not(node.expr), f"propagate_real_tensors: {node.expr} == False"
            )
            return False

        defer = DEFERRED_ASSERTION.resolved().read()

        def defer_kept(environment: Any, *args: Any, **kwargs: Any) -> Any:
            result = defer(environment, *args, **kwargs)
            for assertions in environment.deferred_runtime_asserts.values():
                assertions[:] = [replace(assertion, expr=_kept(assertion.expr)) for assertion in assertions]
            return result

        call = HIGHER_ORDER_CALL.resolved().read()

        def call_unknown(function: Any, /, *args: Any, **kwargs: Any) -> Any:
            results = call(function, *args, **kwargs)
            for leaf in tree_leaves(results) if function.name() not in _TRACED_CALLS else ():
                if isinstance(leaf, FakeTensor):
                    leaf.real_tensor = None
            return results

        answers = {REAL_TENSORS: True, REAL_TENSOR_LOG: log, SIZE_CONDITION: guard_bool}
        others = {DEFERRED_ASSERTION: defer_kept, HIGHER_ORDER_CALL: call_unknown, SIGN_BIT: _is_negative}
        check = REAL_CHECK.resolved().read()

        def check_known(real: torch.Tensor, fake: torch.Tensor, **kwargs: Any) -> None:
            if real.dtype == torch.int64 and fake.dtype in _NARROW:  # prims.sum and prims.prod of them return int64
                with _disable_current_modes():
                    real.data = real.to(fake.dtype)
            if isinstance(fake.storage_offset(), int):  # else the check answers that it is the example's
                check(real, fake, **kwargs)

        return _both(
            patched({**answers, REAL_CHECK: check_known, REAL_COPY: _copy, REAL_CLONE: _clone, **others}),
            _BooleanFunctions(integers),
        )


def _kept(condition: sympy.Basic) -> sympy.Basic:
    """Return a condition that means the same and is not a bound of one symbol, which torch.export would drop."""
    if not isinstance(condition, sympy.LessThan | sympy.GreaterThan) or len(condition.free_symbols) != 1:
        return condition
    strict = sympy.StrictLessThan if isinstance(condition, sympy.LessThan) else sympy.StrictGreaterThan
    either: list[Any] = [strict(*condition.args), sympy.Eq(*condition.args)]
    return sympy.Or(*either)


def _copy(target: torch.Tensor, source: torch.Tensor | None) -> None:
    """Copy what is known of ``source``. The rest is zeros: uninitialized memory could be the length of a loop."""
    if isinstance(source, FakeTensor):
        source = source.real_tensor
    target.copy_(source) if type(source) in _PLAIN else target.zero_()  # type: ignore[arg-type]


_NARROW = (torch.int8, torch.int16, torch.int32, torch.uint8)


def _is_negative(number: torch.Tensor) -> torch.Tensor:
    """Return whether the sign bit of each element is set."""
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return (number.view(bits[number.element_size()]) if number.is_floating_point() else number) < 0


def _clone(source: torch.Tensor) -> torch.Tensor | None:
    return source.detach().clone() if type(source) in _PLAIN else None


_ROUNDS = re.compile(r"\b(IntTrueDiv|ToFloat|Round\w+|(Floor|Ceil|Trunc)ToInt|TruncToFloat|PythonMod)\(")
"""Torch's names of functions of numbers."""

_TRACED_CALLS = ("custom_function_call",)
"""Higher-order operators whose functions are traced like other code of the model: their results are known."""
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_ORDERS = (sympy.StrictLessThan, sympy.LessThan, sympy.StrictGreaterThan, sympy.GreaterThan)


@contextmanager
def _both(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> Iterator[None]:
    with torch.random.fork_rng(devices=()), first, second:
        yield


class _BooleanFunctions(TorchFunctionMode):
    """Functions that torch traces wrongly or not at all: of two tensors that return a bool, and of unknown sizes."""

    def __init__(self, integers: bool) -> None:
        super().__init__()
        self._packed = PackedSequences()
        self._integers = integers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._integers and func in (torch.Tensor.item, torch.Tensor.tolist):
            return tree_map(_assumed, func(*args, **(kwargs or {})))
        if self._integers and (first := _SIZES_FROM.get(func)) is not None:
            args = (*args[:first], *tree_map(_read, args[first:]))
        if self._integers and func is torch.Tensor.__format__:  # a name of a module, such as f"expert_{index}"
            args = (_read(args[0]), *args[1:])
            return func(*args) if isinstance(args[0], torch.Tensor) else format(*args)
        if self._integers and func in (torch.bincount, torch.Tensor.bincount):
            return _bincount(*args, **(kwargs or {}))
        if self._integers and func in (torch.repeat_interleave, torch.Tensor.repeat_interleave):
            return _repeated(func, *args, **(kwargs or {}))
        if func in (torch.select, torch.Tensor.select):  # also of torch.Tensor.__getitem__
            args = tuple(map(_assumed, args))
        if func is torch.Tensor.__getitem__ and isinstance(args[1], tuple):
            args = (args[0], _without_masks(args[1]))
        if (replaced := self._packed.replaced(func)) is not None and not kwargs:
            result = replaced(*args)
            return func(*args) if result is NotImplemented else result
        if _lists_by_axis(func, args, kwargs or {}):
            indices = args[0].nonzero()
            return tuple(indices.select(1, axis) for axis in range(args[0].dim()))
        if func in (torch.unbind, torch.Tensor.unbind):  # also of loops over a tensor
            return _unbound(*args, **(kwargs or {}))
        if func in (torch.equal, torch.Tensor.equal):
            a, b = args
            return a.shape == b.shape and bool((a == b).all().item())
        if func in (torch.allclose, torch.Tensor.allclose):
            return bool(torch.isclose(*args, **(kwargs or {})).all().item())
        return func(*args, **(kwargs or {}))


def _lists_by_axis(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a call lists true elements by axis: torch refuses one unknown size in several tensors."""
    if not args or not isinstance(args[0], torch.Tensor) or not args[0].dim():
        return False
    is_where = func is torch.where and len(args) == 1 and not kwargs
    return is_where or (func in (torch.nonzero, torch.Tensor.nonzero) and bool(kwargs.get("as_tuple")))


def _without_masks(indices: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``indices`` with the places of true elements for masks among other tensors, whose number is asked.

    It decides how they broadcast, and torch loses it.
    """
    if sum(isinstance(index, torch.Tensor) and index.dim() > 0 for index in indices) < 2:
        return indices
    places: list[Any] = []
    for index in indices:
        if isinstance(index, torch.Tensor) and index.dtype is torch.bool and index.dim():
            positions = index.nonzero()
            _assumed(positions.shape[0])
            places += [positions.select(1, axis) for axis in range(index.dim())]
        else:
            places.append(index)
    return tuple(places)


def _assumed(argument: Any) -> Any:
    """Return a number that depends on values as Python's, by a question: torch knows no offset of a view at it."""
    return int(argument) if isinstance(argument, torch.SymInt) and free_unbacked_symbols(argument) else argument


_SIZES_FROM: dict[Any, int] = {
    torch.nn.functional.pad: 1,
    **dict.fromkeys((torch.arange, torch.empty, torch.ones, torch.zeros), 0),
    **dict.fromkeys((torch.Tensor.expand, torch.Tensor.repeat, torch.Tensor.reshape, torch.Tensor.view), 1),
    **dict.fromkeys((torch.Tensor.new_empty, torch.Tensor.new_ones, torch.Tensor.new_zeros, torch.reshape), 1),
}
"""Functions that read tensors as numbers which decide sizes, and the first argument that they read so."""


def _read(argument: Any) -> Any:
    """Return an integer tensor of rank 0 as its number."""
    is_number = isinstance(argument, torch.Tensor) and not argument.dim() and not argument.is_floating_point()
    return _assumed(argument.item()) if is_number else argument


def _bincount(input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    """Count in as many bins as the example has."""
    number = _assumed(torch.bincount(input, weights, minlength).shape[0])
    if weights is None:
        counted = torch.ones_like(input, dtype=torch.int64)
    else:
        counted = weights if weights.dtype is torch.float32 else weights.double()
    return torch.zeros(number, dtype=counted.dtype).scatter_add(0, input.long(), counted)


def _repeated(func: Any, *args: Any, **keywords: Any) -> torch.Tensor:
    """Repeat elements as many times in all as in the example."""
    result = func(*args, **keywords)
    size = result.shape[(args[2] if len(args) > 2 else keywords.get("dim")) or 0]
    number = _assumed(size)
    return result if number is size else func(*args, **{**keywords, "output_size": number})


def _unbound(input: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, ...]:
    """Return what `torch.unbind` does, which keeps the axis in its results if the size depends on values."""
    size = input.shape[dim]
    number = _assumed(size)
    return input.unbind(dim) if number is size else tuple(input.select(dim, at) for at in range(number))


def _question(frame: FrameType | None, expression: sympy.Basic, answer: sympy.Basic) -> Question:
    user, asker = frame_of_user(frame, _ASKS)
    if user is None or asker is None:
        return Question("", 0, str(expression), str(answer))
    file, line = user.f_code.co_filename, user.f_lineno
    text, branch = _asked_by(user)
    if asker is not user:
        asked, branch = (str(expression), "")  # by an operator
        if any(part in asker.f_code.co_filename for part in _MODEL_CODE):
            asked, branch = _asked_by(asker)
        read = asker.f_code.co_filename == __file__ and text.endswith(".item()")
        text = text if read else f"{asked}, in {text}" if text else asked
    value = str(float(answer)) if isinstance(answer, sympy.Float) else str(answer)
    return Question(file, line, shorten(text, _MAX_EXPRESSION, placeholder=" ..."), value, branch)


def _asked_by(frame: FrameType) -> tuple[str, str]:
    """Return the expression that ``frame`` evaluates, and the exception that is raised for another value."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    tree = _parsed(file)
    text = _expression_of(frame, tree) or source_line(file, line) or ""
    return text, (tree is not None and _branch_that_raises(tree, line)) or ""


def _parsed(file: str) -> ast.Module | None:
    lines = source_lines(file)
    try:
        return None if lines is None else ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):  # a cell of a notebook with magics
        return None


def _expression_of(frame: FrameType, tree: ast.Module | None) -> str | None:
    """Return the expression that ``frame`` evaluates. Python 3.11 and later know its columns."""
    positions: Any = getattr(frame.f_code, "co_positions", None)
    if positions is None or tree is None:
        return None
    first, last, start, end = next(islice(positions(), frame.f_lasti // 2, None), (None,) * 4)
    for node in ast.walk(tree):
        lines = (getattr(node, name, None) for name in ("lineno", "end_lineno", "col_offset", "end_col_offset"))
        if tuple(lines) == (first, last, start, end):
            asked = node.test if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert) else node
            while isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not):
                asked = asked.operand
            return ast.unparse(asked)
    return None


def assertion_at(file: str, line: int) -> tuple[str, str] | None:
    """Return the condition and the exception of the ``assert`` at a line; None if there is another statement."""
    tree = _parsed(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0):
            condition = shorten(ast.unparse(node.test), _MAX_EXPRESSION, placeholder=" ...")
            return condition, _assertion_error(node)
    return None


def _assertion_error(node: ast.Assert) -> str:
    return f"AssertionError({ast.unparse(node.msg) if node.msg is not None else ''})"


def _branch_that_raises(tree: ast.Module, line: int) -> str | None:
    """Return the exception of an ``if`` whose body only raises, or of an ``assert``, at ``line``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.If | ast.Assert) or not node.test.lineno <= line <= (node.test.end_lineno or 0):
            continue
        if isinstance(node, ast.Assert):
            return _assertion_error(node)
        for branch in (node.body, node.orelse):
            if len(branch) == 1 and isinstance(branch[0], ast.Raise) and branch[0].exc is not None:
                return ast.unparse(branch[0].exc)
    return None

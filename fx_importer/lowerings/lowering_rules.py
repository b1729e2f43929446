"""Rules of users' lowerings, and the decorators that make them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch._ops import OpOverload

from fx_importer.decompositions.engine.table import Operator, overloads
from fx_importer.errors import UsageError
from fx_importer.lowerings.linalg import LinalgEmitter
from fx_importer.lowerings.stablehlo import StablehloEmitter
from fx_importer.lowerings.target_emitter import TargetEmitter
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.output_types import OutputType

EMITTERS: dict[OutputType, type[TargetEmitter]] = {
    OutputType.LINALG_ON_TENSORS: LinalgEmitter,
    OutputType.TOSA: TosaEmitter,
    OutputType.STABLEHLO: StablehloEmitter,
}
"""The emitter of each output type that rules lower into."""


class NoMatch(Exception):
    """Raised by a rule that does not match a call: the next rule is tried, and at last the built-in lowering."""


@dataclass(frozen=True)
class Lowering:
    """A rule that emits operators in the dialect of output types."""

    operators: tuple[OpOverload, ...]
    into: tuple[OutputType, ...]
    rule: Callable[..., Any]
    """Takes an emitter and the arguments of the operator; returns a value for each result."""

    def is_for(self, output_type: OutputType | None) -> bool:
        """Whether it lowers into ``output_type`` or one of its bases."""
        return output_type is not None and (output_type in self.into or self.is_for(output_type.base))

    def __str__(self) -> str:
        return described(self.rule)

    def as_python(self, expression: Callable[[Any], str]) -> str:
        """Return the Python expression of an equal object; ``expression`` writes its parts."""
        operators = ", ".join(map(expression, self.operators))
        return f"fx_importer.lowers({operators}, into={expression(list(self.into))})({expression(self.rule)})"


@dataclass(frozen=True)
class NodeRule(Lowering):
    """A rule that takes a node of the graph and the values of nodes, a `SymbolTable`."""

    def as_python(self, expression: Callable[[Any], str]) -> str:
        """See `Lowering.as_python`."""
        into = f"tuple(map(fx_importer.OutputType.get, {expression(list(self.into))}))"
        return f"{expression(type(self))}({expression(self.operators)}, {into}, {expression(self.rule)})"


@dataclass(frozen=True)
class External:
    """Operators that become calls of a function that the module only declares."""

    operators: tuple[OpOverload, ...]
    symbol: str
    stub: Callable[..., Any] | None = None
    """The function that PyTorch runs instead, with the arguments of the operator; by default the operator."""

    def __call__(self, stub: Callable[..., Any]) -> External:
        """Return it with the function that PyTorch runs, as a decorator."""
        return replace(self, stub=stub)

    def __str__(self) -> str:
        return described(self.stub) if self.stub else f"external(..., symbol={self.symbol!r})"

    def as_python(self, expression: Callable[[Any], str]) -> str:
        """See `Lowering.as_python`."""
        text = f"fx_importer.external({', '.join(map(expression, self.operators))}, symbol={self.symbol!r})"
        return text if self.stub is None else f"{text}({expression(self.stub)})"


def lowers(
    *operators: Operator, into: str | OutputType | Iterable[str | OutputType]
) -> Callable[[Callable[..., Any]], Lowering]:
    """Make a function the lowering of ``operators`` into one or several output types.

    The function takes an emitter, a `TargetEmitter`, and the arguments of the operator, keyword-only ones by keyword:
    tensors as values of builtin tensor types, symbolic scalars as tensors of rank 0, lists as lists, everything else
    as in Python. It returns a value for each result, of the types in ``emit.results``. It raises `NoMatch` for calls
    that it does not lower.

    Raises:
        UsageError: for an argument that is not an operator, or an output type without an emitter.
    """
    kinds = [into] if isinstance(into, str | OutputType) else list(into)
    types = tuple(OutputType.get(kind) for kind in kinds)
    wrong = [type_ for type_ in types if type_.root not in EMITTERS]
    if wrong or not types:
        refused = ", ".join(kind.value for kind in wrong) or "nothing"
        raise UsageError(f"a rule lowers into {', '.join(kind.value for kind in EMITTERS)}, and not into {refused}")
    targets = tuple(overloads(operators))
    if not targets:
        raise UsageError("lowers(...) names no operator: lowers(torch.ops.mylib.twice.default, into=...)")
    return lambda rule: Lowering(targets, types, rule)


def external(*operators: Operator, symbol: str) -> External:
    """Lower ``operators`` to calls of the function ``symbol``, in every output type.

    The module declares it, ``func.func private``, to be defined by the consumer of the module: it takes the tensors of
    the operator, and returns its results. Calls of different types or arguments get several functions, ``symbol_1`` and
    so on. ``Lowered.run`` and ``verify`` have PyTorch run the operator, or the function that this decorates.

    Raises:
        UsageError: for an argument that is not an operator, or an invalid name of a function.
    """
    if not symbol.isidentifier():
        raise UsageError(f"symbol={symbol!r} is not the name of a function: letters, digits and underscores make one")
    if not operators:
        raise UsageError("external(...) names no operator: external(torch.ops.mylib.twice.default, symbol=...)")
    return External(tuple(overloads(operators)), symbol)


def described(function: Callable[..., Any]) -> str:
    """Return the name of a function, with its file and line if they are known."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return name
    return f"{name} ({file}:{line})"

"""Lowerings of single operators, as users write them: values that know which operators they lower, and into what."""

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
"""What emits for rules, by what they lower into."""


class NoMatch(Exception):
    """A rule does not lower this call: the next one is asked, and in the end what is built in."""


@dataclass(frozen=True)
class Lowering:
    """A rule that emits what operators compute in the dialect of an output type."""

    operators: tuple[OpOverload, ...]
    into: tuple[OutputType, ...]
    rule: Callable[..., Any]
    """Takes an emitter and the operator's arguments; returns a value for each result."""

    def is_for(self, output_type: OutputType | None) -> bool:
        """Whether it lowers into ``output_type``, or into one that this is made of."""
        return output_type is not None and (output_type in self.into or self.is_for(output_type.base))

    def __str__(self) -> str:
        return described(self.rule)


@dataclass(frozen=True)
class NodeRule(Lowering):
    """A rule that takes a node of the graph, and a table of the values of nodes: see `SymbolTable`."""


@dataclass(frozen=True)
class External:
    """Operators that are calls of a function that the module declares."""

    operators: tuple[OpOverload, ...]
    symbol: str
    stub: Callable[..., Any] | None = None
    """What PyTorch runs for it; without it, the operator itself. It takes the operator's arguments."""

    def __call__(self, stub: Callable[..., Any]) -> External:
        """Return it with a function that PyTorch runs: so it is a decorator."""
        return replace(self, stub=stub)

    def __str__(self) -> str:
        return described(self.stub) if self.stub else f"external(..., symbol={self.symbol!r})"


def lowers(
    *operators: Operator, into: str | OutputType | Iterable[str | OutputType]
) -> Callable[[Callable[..., Any]], Lowering]:
    """Label a function as the lowering of ``operators`` into an output type, or into several.

    The function takes an emitter, of `TargetEmitter`'s vocabulary, and the arguments of the operator, those that are
    only keywords by keyword: tensors as values of builtin tensor types, a number that is not known yet as a tensor of
    rank 0, lists as lists, everything else as in Python. It returns a value for each result, of the types in
    ``emit.results``. To leave a call to others it raises `NoMatch`.

    Raises:
        UsageError: for what is no operator, or an output type that has no emitter.
    """
    given = [into] if isinstance(into, str | OutputType) else list(into)
    types = tuple(OutputType.get(each) for each in given)
    wrong = [each for each in types if each.root not in EMITTERS]
    if wrong or not types:
        said = ", ".join(each.value for each in wrong) or "nothing"
        raise UsageError(f"a rule lowers into {', '.join(each.value for each in EMITTERS)}, and not into {said}")
    found = tuple(overloads(operators))
    if not found:
        raise UsageError("lowers(...) names no operator: lowers(torch.ops.mylib.twice.default, into=...)")
    return lambda rule: Lowering(found, types, rule)


def external(*operators: Operator, symbol: str) -> External:
    """Make ``operators`` calls of the function ``symbol``, in every output type.

    The module declares it, ``func.func private``, and whoever compiles the module defines it: it takes the operator's
    tensors, and returns its results. What is called in several ways is several functions, ``symbol_1`` and so on.
    ``Lowered.run`` and ``verify`` have PyTorch run the operator; or the function that this decorates.

    Raises:
        UsageError: for what is no operator, or no name of a function.
    """
    if not symbol.isidentifier():
        raise UsageError(f"symbol={symbol!r} is no name of a function: letters, digits and underscores make one")
    if not operators:
        raise UsageError("external(...) names no operator: external(torch.ops.mylib.twice.default, symbol=...)")
    return External(tuple(overloads(operators)), symbol)


def described(function: Callable[..., Any]) -> str:
    """Return the name of a function and where it is defined, as far as that is known."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return name
    return f"{name} ({file}:{line})"

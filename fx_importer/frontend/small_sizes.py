"""Sizes of 0 and 1, which torch.export excludes when it traces a dynamic dimension: where a program depends on that.

torch.export assumes sizes of at least 2 and records no guard for it. Most programs are right for smaller sizes too. A
program is not if its Python code took a branch that a smaller size would not take, or if an operator has another shape
there, such as `squeeze`. Both become guards of the program's shape environment, so that callers check them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
import torch
from torch import fx
from torch._guards import ShapeGuard, SLoc
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from fx_importer.diagnostics.mlir_diagnostics import read_frames, user_frame
from fx_importer.frontend.concrete_shapes import ConcreteShapes
from fx_importer.frontend.size_conditions import SizeConditions, described_line
from fx_importer.symbolic.guards import environment_of, guards_of, plain, plain_symbol

Sizes = Mapping[sympy.Symbol, Any]
"""Sizes by symbol, as SymPy's integers."""

TRACED_BY_DYNAMO = "fx_importer.traced_by_dynamo"
"""Key of the metadata of graph modules from torch.compile: TorchDynamo traces sizes of 0 and 1 anew."""

Differs = Callable[[ExportedProgram, ShapeEnv, Sizes], bool]
"""Whether the results of a program differ from the model's for these sizes; also if that cannot be known."""

_MAX_SYMBOLS_IN_PAIRS = 4
"""The most symbols of a program whose pairs are tried at 1 too."""


def guard_small_sizes(program: ExportedProgram, asked: SizeConditions, differs: Differs) -> None:
    """Add a guard for each dependence of ``program`` on sizes of at least 2, or of at least 1, to its environment.

    ``differs`` is called for sizes for which a condition that Python code has ``asked`` for is false.
    """
    environment = environment_of(program)
    if (
        program.graph_module.meta.get(TRACED_BY_DYNAMO)
        or environment is None
        or not (symbols := _small_symbols(program, environment))
    ):
        return
    exported = {symbol: sympy.Integer(size) for symbol, size in environment.backed_var_to_val.items()}
    equal = {plain_symbol(symbol): plain(environment.replace(symbol)) for symbol in exported}
    conditions = {condition.xreplace(equal): line for condition, line in asked.lines.items()}
    guards = guards_of(program)
    operators = _Operators(program, environment, exported)
    excluded: dict[tuple[sympy.Symbol, ...], dict[int, str]] = {}
    for small in _small_sizes(symbols, exported):
        sizes = {**exported, **small}
        if any(size in excluded.get((symbol,), ()) for symbol, size in small.items()):
            continue  # one of several sizes is excluded by itself
        if any(_is_false(guard, sizes) for guard in guards):
            continue  # by a guard of torch.export
        line = next((line for condition, line in conditions.items() if _is_false(condition, sizes)), None)
        if line is None or not differs(program, environment, sizes):
            line = operators.line_of_another_shape(sizes)
        if line is not None:
            excluded.setdefault((*small,), {})[int(next(iter(small.values())))] = line
    for condition, line in _conditions(excluded):
        environment.guards.append(ShapeGuard(condition, SLoc(None, line), size_oblivious=False))


def _small_symbols(program: ExportedProgram, environment: ShapeEnv) -> list[sympy.Symbol]:
    """Return the symbols of input sizes that callers may pass as 0 or 1, in order."""
    symbols: dict[sympy.Symbol, None] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                symbols |= dict.fromkeys(sorted(environment.replace(size.node.expr).free_symbols, key=str))
    return [
        symbol
        for symbol in symbols
        if symbol in environment.backed_var_to_val
        and (limits := environment.var_to_range.get(symbol)) is not None
        and limits.lower <= 2
    ]


def _small_sizes(symbols: list[sympy.Symbol], exported: Sizes) -> Iterator[Sizes]:
    """Yield a size of 0 or 1 of one of ``symbols``, or of 1 of two of them, unless the program was exported with it."""
    for symbol, size in itertools.product(symbols, (sympy.S.One, sympy.S.Zero)):
        if exported[symbol] != size:
            yield {symbol: size}
    if len(symbols) <= _MAX_SYMBOLS_IN_PAIRS:
        for pair in itertools.combinations(symbols, 2):
            yield dict.fromkeys(pair, sympy.S.One)


def _conditions(excluded: Mapping[tuple[sympy.Symbol, ...], Mapping[int, str]]) -> Iterator[tuple[Any, str]]:
    """Yield what the sizes have to be, with the source line that depends on it."""
    for symbols, lines in excluded.items():
        size = sympy.Mul(*map(plain_symbol, symbols))
        if 0 in lines:
            yield sympy.Ge(size, len(lines)), lines.get(1, lines[0])
        else:
            yield sympy.Ne(size, 1), lines[1]


def _is_false(condition: sympy.Basic, sizes: Sizes) -> bool:
    try:
        return condition.xreplace({**sizes, **{plain_symbol(s): size for s, size in sizes.items()}}) == sympy.false
    except ArithmeticError:  # a division by a size of 0: the condition is not asked
        return False


class _Operators:
    """The operators of a program that take or return symbolic sizes."""

    def __init__(self, program: ExportedProgram, environment: ShapeEnv, exported: Sizes):
        graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
        self._nodes = [node for graph in graphs for node in graph.nodes if _depends_on_sizes(node)]
        self._environment = environment
        self._known: dict[Any, bool] = {}
        self._exported = ConcreteShapes(environment, exported, self._known)

    def line_of_another_shape(self, sizes: Sizes) -> str | None:
        """Return the source line of an operator whose shapes differ from the traced ones; None if there is none."""
        concrete = ConcreteShapes(self._environment, sizes, self._known)
        for node in self._nodes:
            if not concrete.agree(node) and self._exported.agree(node):
                frame = user_frame(tuple(reversed(read_frames(node.meta.get("stack_trace")))))
                return described_line(*frame) if frame else f"{node.target}"
        return None


def _depends_on_sizes(node: fx.Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return False
    values = [node.meta.get("val"), *(argument.meta.get("val") for argument in node.all_input_nodes)]
    return any(
        isinstance(leaf, torch.SymInt)
        or (isinstance(leaf, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in leaf.shape))
        for leaf in pytree.tree_leaves(values)
    )

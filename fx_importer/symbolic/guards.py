"""Guards of torch.export on input sizes: assumptions of tracing, other than the ranges of single sizes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from traceback import FrameSummary
from typing import Any

import sympy
from torch import Tensor
from torch._guards import ShapeGuard
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges

from fx_importer.symbolic.conversions import to_text
from fx_importer.symbolic.file_guards import assume

_LOG = logging.getLogger(__name__)

_IRRELEVANT = {
    "torch/_prims_common/__init__.py": re.compile(
        "is_contiguous|check_contiguous_.*|is_channels_last_.*|are_strides_.*|is_non_overlapping_.*|compute_elementwise_.*|should_swap"
        "|suggest_memory_format"
    ),
    "torch/_prims/__init__.py": re.compile("_collapse_view_helper|_split_dim_.*"),
    "torch/_refs/__init__.py": re.compile("_reshape_view_helper.*"),
    "torch/_dynamo/guards.py": re.compile("check"),
    "torch/_meta_registrations.py": re.compile("pooling_output_shape_pad_lr|div_rtn"),
}
"""The functions of torch, by file, whose guards say nothing of results: they decide strides, or whether a reshape is a
view, which tensors of MLIR do not have; or the sizes of pools, whose operators compute them when the program runs."""

_LARGE = tuple(map(sympy.Integer, range(2**40, 2**40 + 12)))
"""Sizes that no upper bound allows, with remainders of small divisors."""


def guards_of(program: ExportedProgram) -> list[sympy.Basic]:
    """Return the conditions on symbolic sizes that tracing ``program`` assumed, in order and each once.

    Guards on strides are left out, except for upper bounds of sizes, and for a program from a ``.pt2`` file, which does
    not record their source. Ranges of symbols that equal others are conditions on the others.
    """
    return [*_guard_lines(program)]


def guard_texts(program: ExportedProgram) -> dict[str, str]:
    """Return `guards_of` ``program`` as texts that `SizeExpression` reads, with the source line that each is for.

    The line is empty where it is not known, as for torch.export's own guards. A guard with a function that
    `SizeExpression` lacks, such as a square root, is omitted and logged.
    """
    texts: dict[str, str] = {}
    for guard, line in _guard_lines(program).items():
        try:
            text = to_text(guard).text
            texts[text] = texts.get(text) or line
        except ValueError:
            _LOG.warning("callers do not check the guard %s of torch.export", guard)
    return texts


def _guard_lines(program: ExportedProgram) -> dict[sympy.Basic, str]:
    """Return the source line of each condition of `guards_of`, or nothing where it is not known."""
    environment = environment_of(program)
    lines: dict[sympy.Basic, str] = {}
    if environment is not None:
        equal = {plain_symbol(symbol): plain(environment.replace(symbol)) for symbol in environment.replacements}
        for guard in environment.guards:
            condition = environment.replace(guard.expr).xreplace(equal)  # a symbol that equals another is in no size
            if condition.free_symbols and not _is_irrelevant(guard):
                lines[condition] = lines.get(condition) or guard.sloc.maybe_user_loc or ""
        lines |= dict.fromkeys(_replaced_ranges(program, equal), "")
    return lines


def _replaced_ranges(program: ExportedProgram, equal: Mapping[sympy.Symbol, Any]) -> Iterator[sympy.Basic]:
    """Yield the limits of symbols that decompositions turned out to be ``equal`` to others, on the others.

    Limits that the range of the other symbol has too are left out, as is torch.export's lower limit of 2.
    """
    ranges = {plain_symbol(symbol): limits for symbol, limits in program.range_constraints.items()}
    for symbol, size in equal.items():
        if symbol in ranges and size.free_symbols:
            limits, known = ranges[symbol], ranges.get(size, ValueRanges.unknown_int())
            if limits.lower > max(known.lower, 2):
                yield sympy.Ge(size, limits.lower)
            if limits.upper < known.upper:
                yield sympy.Le(size, limits.upper)


def plain(expression: sympy.Basic) -> Any:
    """Return ``expression`` with symbols that SymPy does not assume to be positive: sizes may be 0."""
    return expression.xreplace({symbol: plain_symbol(symbol) for symbol in expression.free_symbols})


def plain_symbol(symbol: sympy.Basic) -> sympy.Symbol:
    return sympy.Symbol(str(symbol), integer=True)


def add_guards(program: ExportedProgram, conditions: Iterable[Any]) -> None:
    """Add ``conditions``, which follow from the guards and ranges of ``program``, to its shape environment."""
    environment = environment_of(program)
    if environment is not None:
        known = {guard.expr for guard in environment.guards}
        environment.guards += [
            ShapeGuard(condition, environment._get_sloc(), size_oblivious=False)
            for condition in conditions
            if condition not in known
        ]


def restore_guards(program: ExportedProgram) -> None:
    """Add the guards of a program from a ``.pt2`` file to its shape environment, where torch.export has them."""
    environment = environment_of(program)
    code = getattr(program, "_guards_code", None)
    if not code or environment is None or environment.var_to_sources:  # sizes of files have no sources
        return
    for guard in code:
        assume(program, guard)


def _is_irrelevant(guard: ShapeGuard) -> bool:
    """Return whether ``guard`` is on strides, and no upper bound of a size, with which torch computes other sizes."""
    place, condition = guard.sloc.framework_loc, guard.expr
    if not isinstance(place, FrameSummary):
        return False
    functions = (names for file, names in _IRRELEVANT.items() if place.filename.endswith(file))
    return any(names.fullmatch(place.name) for names in functions) and any(
        condition.subs(dict.fromkeys(condition.free_symbols, size)) != sympy.false for size in _LARGE
    )


def environment_of(program: ExportedProgram) -> ShapeEnv | None:
    """Return the shape environment of the inputs of ``program``; None if all sizes are static."""
    values = (node.meta.get("val") for node in program.graph.find_nodes(op="placeholder"))
    modes = (getattr(value, "fake_mode", None) for value in values if isinstance(value, Tensor))
    return next((mode.shape_env for mode in modes if mode is not None and mode.shape_env is not None), None)

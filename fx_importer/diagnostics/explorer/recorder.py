"""Record of the program or the module after each stage of a compilation, and of the changes of single passes."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import Match, SequenceMatcher
from typing import TYPE_CHECKING

from torch import fx

from fx_importer.diagnostics.explorer.module_view import module_view
from fx_importer.diagnostics.explorer.program_view import node_counts, program_lines, program_view
from fx_importer.diagnostics.explorer.sites import Sites
from fx_importer.diagnostics.explorer.view import ExplorerView
from fx_importer.diagnostics.mlir_diagnostics import read_frames
from fx_importer.diagnostics.observers import Observer
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_summary import operation_counts

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_VALUE = re.compile(r"%[\w#:]+")
_CONTEXT = 3
_MOST_ROWS = 3000
"""Rows of a difference beyond which it is cut off."""
_MOST_EDITS = 1000
"""Inserted and removed rows beyond which the rest counts as replaced."""


@dataclass(frozen=True)
class PassChange:
    """A pass and its changes."""

    stage: int
    """Number of the stage in the trace."""
    name: str
    operations: int
    """Operations after it."""
    hunks: tuple[tuple[int, int, tuple[str, ...]], ...]
    """First rows in the texts before and after, from 0, and rows with a sign: ``-``, ``+`` or a space."""


def hunks_between(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield the hunks of `PassChange`: lines that differ in more than the numbers of values, with lines around them."""
    old, new = ([_VALUE.sub("%", line) for line in lines] for lines in (before, after))
    left = _MOST_ROWS
    for group in _Matcher(old, new).get_grouped_opcodes(_CONTEXT):
        rows: list[str] = []
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows += [f" {line}" for line in after[j1:j2]]
            else:
                rows += [f"-{line}" for line in before[i1:i2]] + [f"+{line}" for line in after[j1:j2]]
        if left <= 0:
            return
        yield group[0][1], group[0][3], tuple(rows[:left])
        left -= len(rows)


class _Matcher(SequenceMatcher[str]):
    """Finds the fewest edits by Myers' algorithm: `difflib`'s own takes a minute where many lines are equal."""

    def __init__(self, old: Sequence[str], new: Sequence[str]):
        super().__init__(None, old, new)
        self._old, self._new = old, new

    def get_matching_blocks(self) -> list[Match]:
        old, new = self._old, self._new
        history = [array("l")]
        for edits in range(_MOST_EDITS + 1):
            rows = array("l", bytes(array("l").itemsize * (2 * edits + 3)))
            for diagonal in range(-edits, edits + 1, 2):
                row, _ = _entry(history[edits], edits, diagonal)
                while row < len(old) and row - diagonal < len(new) and old[row] == new[row - diagonal]:
                    row += 1
                rows[diagonal + edits + 1] = row
                if diagonal == len(old) - len(new) and row >= len(old):
                    return _blocks(history, len(old), len(new))
            history.append(rows)
        return _common_ends(old, new)


def _entry(furthest: Sequence[int], edits: int, diagonal: int) -> tuple[int, bool]:
    """Return the row of the old text where a path of ``edits`` enters ``diagonal``, and whether it inserts.

    A diagonal is the row of the old text less that of the new. ``furthest`` has the furthest row after one edit less
    for each diagonal from ``-edits``.
    """
    if not edits:
        return 0, False
    before, after = diagonal + edits - 1, diagonal + edits + 1
    if diagonal == -edits or (diagonal != edits and furthest[before] < furthest[after]):
        return furthest[after], True
    return furthest[before] + 1, False


def _blocks(history: Sequence[Sequence[int]], row: int, column: int) -> list[Match]:
    """Return the matching blocks of the path to ``row`` of the old text and ``column`` of the new, and an empty one."""
    blocks = [Match(row, column, 0)]
    for edits in range(len(history) - 1, -1, -1):
        diagonal = row - column
        start, inserted = _entry(history[edits], edits, diagonal)
        if row > start:
            blocks.append(Match(start, start - diagonal, row - start))
        row, column = (start, start - diagonal - 1) if inserted else (start - 1, start - diagonal)
    return blocks[::-1]


def _common_ends(old: Sequence[str], new: Sequence[str]) -> list[Match]:
    """Return the blocks at the start and at the end, and an empty one; the lines between them count as replaced."""
    first = last = 0
    shorter = min(len(old), len(new))
    while first < shorter and old[first] == new[first]:
        first += 1
    while last < shorter - first and old[-1 - last] == new[-1 - last]:
        last += 1
    ends = Match(0, 0, first), Match(len(old) - last, len(new) - last, last)
    return [*(end for end in ends if end.size), Match(len(old), len(new), 0)]


PROGRAM = "exported program"
"""The file of FX nodes that have no Python line, as those of gradients."""

MOST_OPERATIONS = 2000
"""Operations beyond which changes of single passes are not recorded: each takes as long as the pass."""


@dataclass(frozen=True)
class Recorded:
    """The IR after a stage that passed."""

    stage: str
    counts: Mapping[str, int]
    """Operations, or calls of a graph, by name."""
    view: ExplorerView


@dataclass
class Recorder(Observer):
    """Keeps the text after each stage of a compilation and the changes of its passes: the first of several.

    While it records, FX nodes without a Python line have lines of the exported program, by which views are linked.
    """

    sites: Sites = field(default_factory=Sites)
    recorded: dict[int, Recorded] = field(default_factory=dict)
    """By the number of the stage in the trace."""
    passes: list[PassChange] = field(default_factory=list)
    trace: Trace | None = None
    """The compilation that is recorded."""
    program_lines: tuple[str, ...] = ()
    """The lines of `PROGRAM`, if nodes have no lines of Python."""
    _last: tuple[str, ...] = ()
    """The text before the next pass."""
    _traced: list[fx.Node] = field(default_factory=list)

    def before(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        self.trace = self.trace or trace
        if trace is self.trace and module is not None and record.pipeline:
            self._last = _lines(module.operation)

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        self.trace = self.trace or trace
        if record.failure is not None or trace is not self.trace:
            return
        number = len(trace.stages) - 1
        if module is not None:
            self.add_module(number, record.name, module.operation)
        elif record.programs:
            if not self.recorded:
                self._give_lines(record.programs)
            view = program_view(record.programs, self.sites)
            self.recorded[number] = Recorded(record.name, node_counts(record.programs), view)

    def after_pass(self, name: str, module: ir.Operation) -> None:
        self._add_pass(name, sum(operation_counts(module).values()), lambda: _lines(module))

    def before_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        if sum(node_counts(programs).values()) <= MOST_OPERATIONS:
            self._last = program_lines(programs)

    def after_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        count = sum(node_counts(programs).values())
        self._add_pass(name, count, lambda: program_lines(programs))

    def _add_pass(self, name: str, count: int, lines: Callable[[], tuple[str, ...]]) -> None:
        """Record a pass of the current stage; of a large program, its name alone."""
        if self.trace is None:
            return
        before, self._last = self._last, lines() if count <= MOST_OPERATIONS else ()
        hunks = tuple(hunks_between(before, self._last)) if before and self._last and before != self._last else ()
        self.passes.append(PassChange(len(self.trace.stages) - 1, name, count, hunks))

    def add_module(self, number: int, stage: str, module: ir.Operation) -> None:
        """Record ``module`` as the IR after the stage ``number``."""
        self.recorded[number] = Recorded(stage, operation_counts(module), module_view(module, self.sites))

    def _give_lines(self, programs: Mapping[str, ExportedProgram]) -> None:
        """Give nodes without a Python line the line of `program_view`."""
        starts: dict[fx.Node, int] = {}
        lines = program_view(programs, Sites(), starts).lines
        self._traced = [
            node for node in starts if node.op == "call_function" and not read_frames(node.meta.get("stack_trace"))
        ]
        for node in self._traced:
            node.meta["stack_trace"] = f'File "{PROGRAM}", line {starts[node] + 1}, in {node.name}'
        self.program_lines = lines if self._traced else ()

    def release(self) -> None:
        """Take the lines of `PROGRAM` off the nodes."""
        for node in self._traced:
            node.meta.pop("stack_trace", None)
        self._traced = []


def _lines(module: ir.Operation) -> tuple[str, ...]:
    if sum(operation_counts(module).values()) > MOST_OPERATIONS:
        return ()
    return tuple(module.get_asm(use_local_scope=True, large_elements_limit=16).splitlines())

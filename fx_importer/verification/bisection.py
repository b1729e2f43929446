"""Finds the first node of an exported program whose value differs from eager's."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.errors import FxImporterError, UsageError
from fx_importer.execution import Backend, Caller, Worker
from fx_importer.verification.comparison import Comparison, Tolerance, compare
from fx_importer.verification.divergence import Cause, Divergence, describe
from fx_importer.verification.divergence_script import write_script
from fx_importer.verification.eager_reference import Observer, Reference
from fx_importer.verification.intermediate_outputs import tapped, tensors_on_the_way
from fx_importer.verification.single_op_program import Alone, NodeCall, Relower
from fx_importer.verification.verdict import Check, Status
from fx_importer.verification.verifier import Chosen, Inputs, Subject, call_named, chosen, expected_results, named, run

CHUNK = 1 << 30
"""Bytes of values that are looked at at once; more of them take more lowerings."""

Compared = Mapping[str, Comparison]
"""Values on the way, by their nodes' names, in order."""


def bisect(
    subject: Subject,
    relower: Relower,
    inputs: Inputs,
    backend: str | Backend,
    tolerance: Tolerance,
    isolate: bool,
) -> Divergence | None:
    """Return where ``subject``, called with ``inputs`` on ``backend``, parts from eager; None if it does not.

    First the program is lowered with all that it computes on the way as outputs. Of the values that differ, those are
    suspects whose inputs agree: each is lowered alone, and the first that is wrong by itself is it. Where the outputs
    change the outcome, or cannot be lowered, every node is tried alone.

    Raises:
        UsageError: if the program does not run there at all, or for what `verify` raises it for.
    """
    inputs = named(inputs, subject.exported)
    search = _Search(subject, relower, inputs, backend, tolerance, Worker() if isolate else None)
    (expected,) = expected_results(subject, [inputs])
    (check,) = run(subject, search.load(subject), [(inputs, 0, expected)], tolerance)
    if check.passed:
        return None
    if check.status is not Status.MISMATCH:
        raise UsageError(f"there are no values to compare: {check.backend} {check.status.value}: {check.reason}")
    try:
        compared = search.on_the_way()
    except (FxImporterError, RuntimeError) as error:
        reason = str(error).strip().splitlines()
        search.remarks.append(f"its values on the way cannot be had: {' '.join(reason[:2])}")
        compared = {}
    wrong = [name for name, each in compared.items() if not each.passed]
    suspects = _suspects(search.program, compared) if wrong else []
    found = search.wrong_alone(suspects) or search.wrong_alone(wrong)
    if found is None and not wrong:
        if compared:
            search.remarks.append(
                "with its values on the way as outputs, the program is right: all nodes were tried alone"
            )
        found = search.wrong_alone([node.name for node in search.program.graph.nodes])
    if found is not None:
        return search.divergence(found, Cause.ITSELF, compared)
    name = suspects[0] if suspects else _behind(search.program, check)
    node = _source(_nodes(search.program)[name])
    unknown = node.name in search.untried
    cause = Cause.UNKNOWN if unknown else Cause.ACCUMULATED if wrong else Cause.CONTEXT
    return search.divergence(search.seen(node.name), cause, compared, _mismatch(check))


@dataclass(frozen=True)
class _Seen:
    """A node as eager ran it."""

    node: fx.Node
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    value: Any
    alone: Comparison | None = None
    """What came of it by itself."""


class _Found(Exception):
    """Ends a run of eager: what was looked for was there."""

    def __init__(self, seen: _Seen):
        self.seen = seen


@dataclass(frozen=True)
class _Search:
    """One search, in one function of a program, with one input set."""

    subject: Subject
    relower: Relower
    inputs: Inputs
    backend: str | Backend
    tolerance: Tolerance
    worker: Worker | None
    remarks: list[str] = field(default_factory=list)
    untried: set[str] = field(default_factory=set)
    """Nodes that could not be lowered alone."""

    @property
    def program(self) -> ExportedProgram:
        return self.subject.exported[self.inputs.function or ""]

    def load(self, subject: Subject) -> Chosen:
        return chosen(subject, self.backend, self.worker)

    @functools.cached_property
    def alone(self) -> Alone:
        return Alone(self.relower, self.load, self.tolerance)

    def eager(self, observe: Observer) -> None:
        """Run the exported program in PyTorch."""
        manifest = self.subject.manifest
        functions = {
            name: Reference(self.subject.exported[name], function, observe)
            for name, function in manifest.functions.items()
        }
        call_named(Caller(manifest, functions, self.subject.initial_state()), self.inputs)

    def on_the_way(self) -> Compared:
        """Return what the lowered program computes on the way, beside eager's values."""
        sizes: dict[str, int] = {}
        wanted = {node.name for node in tensors_on_the_way(self.program)}

        def measure(node: fx.Node, _args: Any, _kwargs: Any, value: Any) -> None:
            if node.name in wanted:
                sizes[node.name] = value.numel() * value.itemsize

        self.eager(measure)
        return {name: found for chunk in _chunks(sizes) for name, found in self._compare_chunk(chunk)}

    def _compare_chunk(self, names: Sequence[str]) -> Iterator[tuple[str, Comparison]]:
        values: dict[str, torch.Tensor] = dict.fromkeys(names, torch.empty(0))

        def keep(node: fx.Node, _args: Any, _kwargs: Any, value: Any) -> None:
            if node.name in values:
                values[node.name] = value.clone()

        self.eager(keep)
        subject = self.relower(tapped(self.program, names), (), None)
        (function,) = subject.manifest.functions
        loaded = self.load(subject).load(subject.linked, function)
        caller = Caller(subject.manifest, {function: loaded}, subject.initial_state())
        results = call_named(caller, Inputs(self.inputs.args, self.inputs.kwargs, function))
        for (name, wanted), (_, result) in zip(values.items(), results, strict=False):  # new state comes after them
            yield name, compare(result, wanted, self.tolerance)

    def wrong_alone(self, names: Iterable[str]) -> _Seen | None:
        """Return the first of the nodes ``names`` that is wrong by itself, given eager's values."""
        nodes = _nodes(self.program)
        wanted = {_source(nodes[name]).name for name in names} - self.untried

        def attempt(node: fx.Node, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> None:
            if node.name not in wanted or not any(isinstance(each, torch.Tensor) for each in pytree.tree_leaves(value)):
                return
            try:
                compared = self.alone.compare(NodeCall.of(node, args, kwargs), value)
            except Exception as error:  # whatever it is, it says nothing of the values
                self.untried.add(node.name)
                reason = (str(error).strip().splitlines() or [""])[0]
                self.remarks.append(f"{node.name} cannot be tried alone: {type(error).__name__}: {reason}")
                return
            if not compared.passed:
                raise _Found(_Seen(node, args, kwargs, value, compared))

        return self._look(attempt) if wanted else None

    def seen(self, name: str) -> _Seen:
        """Return the node ``name`` as eager ran it."""

        def look(node: fx.Node, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> None:
            if node.name == name:
                raise _Found(_Seen(node, args, kwargs, value))

        found = self._look(look)
        assert found is not None
        return found

    def _look(self, observe: Observer) -> _Seen | None:
        try:
            self.eager(observe)
        except _Found as found:
            return found.seen
        return None

    def divergence(
        self, seen: _Seen, cause: Cause, compared: Compared, otherwise: Comparison | None = None
    ) -> Divergence:
        """Return all that is to be said of a node."""
        nodes = _nodes(self.program)
        its = [each for name, each in compared.items() if _source(nodes[name]) is nodes[seen.node.name]]
        inside = next((each for each in its if not each.passed), None)
        comparison = inside or seen.alone or otherwise
        assert comparison is not None
        order = list(nodes)
        before = set(order[: order.index(seen.node.name)])
        return Divergence(
            **describe(seen.node, seen.args, dict(seen.kwargs), seen.value),
            cause=cause,
            comparison=comparison,
            backend=self.load(self.subject).name,
            agreeing=sum(each.passed for name, each in compared.items() if name in before),
            remarks=tuple(self.remarks),
            script=self._script(seen) if cause is Cause.ITSELF and isinstance(self.backend, str) else None,
        )

    def _script(self, seen: _Seen) -> Path | None:
        assert isinstance(self.backend, str)
        call = NodeCall.of(seen.node, seen.args, seen.kwargs)
        given = self.subject.options.decompositions
        table: dict[Any, Callable[..., Any]] = {}
        extra: dict[Any, Callable[..., Any]] = {}
        if given.table is not None or given.extra:
            recording = None if given.table is None else _recording(given.table, table)
            recorded = replace(given, table=recording, extra=_recording(given.extra, extra))
            self.relower(call.module, call.inputs, recorded)
        used = replace(given, table=None if given.table is None else table, extra=extra)
        options = replace(self.subject.options, decompositions=used)
        return write_script(seen.node.name, call, options, self.backend, self.tolerance)


def _chunks(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    chunk: list[str] = []
    total = 0
    for name, size in sizes.items():
        if chunk and total + size > CHUNK:
            yield chunk
            chunk, total = [], 0
        chunk.append(name)
        total += size
    if chunk:
        yield chunk


def _nodes(program: ExportedProgram) -> dict[str, fx.Node]:
    return {node.name: node for node in program.graph.nodes}


def _source(node: fx.Node) -> fx.Node:
    """Return the node that computes what ``node`` only picks from several results."""
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _suspects(program: ExportedProgram, compared: Compared) -> list[str]:
    """Return the nodes whose values are wrong, while all that they are computed from is right."""
    tainted: set[str] = set()
    suspects: list[str] = []
    for node in program.graph.nodes:
        from_wrong = any(each.name in tainted for each in node.all_input_nodes)
        known = compared.get(node.name)
        if (from_wrong and known is None) or (known is not None and not known.passed):
            tainted.add(node.name)
        if known is not None and not known.passed and not from_wrong:
            suspects.append(node.name)
    return suspects


def _mismatch(check: Check) -> Comparison:
    return next(each.comparison for each in check.outputs if not each.comparison.passed)


def _behind(program: ExportedProgram, check: Check) -> str:
    """Return the node that the first wrong output is the value of; of other results, the last one of all."""
    position = next(i for i, each in enumerate(check.outputs) if not each.comparison.passed)
    returned = program.graph.output_node().args[0]
    assert isinstance(returned, list | tuple)
    node = returned[position] if position < len(returned) else None
    if isinstance(node, fx.Node) and node.op == "call_function":
        return node.name
    return [node.name for node in program.graph.nodes if node.op == "call_function"][-1]


def _recording(
    table: Mapping[Any, Callable[..., Any]], used: dict[Any, Callable[..., Any]]
) -> dict[Any, Callable[..., Any]]:
    """Return ``table``, with rules that write themselves to ``used`` when they are applied."""

    def recorded(key: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(rule)
        def apply(*args: Any, **kwargs: Any) -> Any:
            used[key] = rule
            return rule(*args, **kwargs)

        return apply

    return {key: recorded(key, rule) for key, rule in table.items()}

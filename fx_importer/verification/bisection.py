"""Bisection: search for the first node of an exported program whose value differs from eager's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.calls.backend import Backend
from fx_importer.calls.caller import Caller
from fx_importer.engines import Worker
from fx_importer.errors import FxImporterError, UsageError
from fx_importer.verification.comparison import Comparison, Tolerance, compare
from fx_importer.verification.divergence import Divergence, DivergenceCause, describe
from fx_importer.verification.divergence_script import write_script
from fx_importer.verification.eager_reference import Observer
from fx_importer.verification.intermediate_outputs import (
    Compared,
    first_wrong_output_node,
    intermediate_tensors,
    nodes_by_name,
    source_node,
    suspect_nodes,
    with_intermediate_outputs,
)
from fx_importer.verification.program_results import call_named, expected_results, results_in_turn
from fx_importer.verification.single_op_program import NodeCall, Relower, SingleOpProgram
from fx_importer.verification.subject import Inputs, Subject
from fx_importer.verification.verdict import Check, Status
from fx_importer.verification.verifier import Chosen, chosen, named, run

CHUNK = 1 << 30
"""Bytes of intermediate values per lowering."""


def bisect(
    subject: Subject,
    relower: Relower,
    inputs: Inputs,
    backend: str | Backend,
    tolerance: Tolerance,
    isolate: bool,
) -> Divergence | None:
    """Return the first node of ``subject`` that differs from eager on ``backend``; None if the results agree.

    First the program is lowered with its intermediate values as outputs. Nodes with wrong values and right inputs are
    suspects: each is lowered alone, and the first that is wrong alone is returned. If the outputs change the result,
    or cannot be lowered, every node is lowered alone.

    Raises:
        UsageError: if the program does not run there at all, or as `verify` raises it.
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
        compared = search.intermediate_values()
    except (FxImporterError, RuntimeError) as error:
        reason = str(error).strip().splitlines()
        search.remarks.append(f"the program with its intermediate values as outputs fails: {' '.join(reason[:2])}")
        compared = {}
    wrong = [name for name, comparison in compared.items() if not comparison.passed]
    suspects = suspect_nodes(search.program, compared) if wrong else []
    op = search.first_wrong_single_op(suspects) or search.first_wrong_single_op(wrong)
    if op is None and not wrong:
        if compared:
            search.remarks.append(
                "with its intermediate values as outputs, the program is right: all nodes were lowered alone"
            )
        op = search.first_wrong_single_op([node.name for node in search.program.graph.nodes])
    if op is not None:
        return search.divergence(op, DivergenceCause.ITSELF, compared)
    name = suspects[0] if suspects else first_wrong_output_node(search.program, check)
    node = source_node(nodes_by_name(search.program)[name])
    unknown = node.name in search.not_lowered
    cause = DivergenceCause.UNKNOWN if unknown else DivergenceCause.ACCUMULATED if wrong else DivergenceCause.CONTEXT
    return search.divergence(search.observed(node.name), cause, compared, _mismatch(check))


@dataclass(frozen=True)
class _ObservedNode:
    """A node with its arguments and value in eager PyTorch."""

    node: fx.Node
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    value: Any
    single_op: Comparison | None = None
    """Comparison of the node lowered alone."""


class _StopObservation(Exception):
    """Stops an eager run once the node was found."""

    def __init__(self, observed: _ObservedNode):
        self.observed = observed


@dataclass(frozen=True)
class _Search:
    """Search in one function of a program with one input set."""

    subject: Subject
    relower: Relower
    inputs: Inputs
    backend: str | Backend
    tolerance: Tolerance
    worker: Worker | None
    remarks: list[str] = field(default_factory=list)
    not_lowered: set[str] = field(default_factory=set)
    """Nodes that could not be lowered alone."""

    @property
    def program(self) -> ExportedProgram:
        return self.subject.computed[self.inputs.function or ""]

    def load(self, subject: Subject) -> Chosen:
        return chosen(subject, self.backend, self.worker)

    @functools.cached_property
    def single_op(self) -> SingleOpProgram:
        return SingleOpProgram(self.relower, self.load, self.tolerance)

    def eager(self, observe: Observer) -> None:
        """Run the exported program in PyTorch."""
        for _ in results_in_turn(self.subject, [self.inputs], self.subject.computed, observe):
            pass

    def intermediate_values(self) -> Compared:
        """Compare the intermediate values of the lowered program with eager's."""
        sizes: dict[str, int] = {}
        wanted = {node.name for node in intermediate_tensors(self.program)}

        def measure(node: fx.Node, _args: Any, _kwargs: Any, value: Any) -> None:
            if node.name in wanted:
                sizes[node.name] = value.numel() * value.itemsize

        self.eager(measure)
        return {name: comparison for chunk in _chunks(sizes) for name, comparison in self._compare_chunk(chunk)}

    def _compare_chunk(self, names: Sequence[str]) -> Iterator[tuple[str, Comparison]]:
        values: dict[str, torch.Tensor] = dict.fromkeys(names, torch.empty(0))

        def keep(node: fx.Node, _args: Any, _kwargs: Any, value: Any) -> None:
            if node.name in values:
                values[node.name] = value.clone()

        self.eager(keep)
        subject = self.relower(with_intermediate_outputs(self.program, names), (), None)
        (function,) = subject.manifest.functions
        loaded = self.load(subject).load(subject.linked, function)
        caller = Caller(subject.manifest, {function: loaded}, subject.initial_state())
        results = call_named(caller, Inputs(self.inputs.args, self.inputs.kwargs, function))
        for (name, wanted), (_, result) in zip(values.items(), results, strict=False):  # followed by new state
            yield name, compare(result, wanted, self.tolerance)

    def first_wrong_single_op(self, names: Iterable[str]) -> _ObservedNode | None:
        """Return the first of the nodes ``names`` that is wrong when lowered alone, with eager's inputs."""
        nodes = nodes_by_name(self.program)
        wanted = {source_node(nodes[name]).name for name in names} - self.not_lowered

        def attempt(node: fx.Node, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> None:
            if node.name not in wanted or not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)):
                return
            try:
                compared = self.single_op.compare(NodeCall.of(node, args, kwargs), value)
            except Exception as error:  # any failure to lower or run it
                self.not_lowered.add(node.name)
                reason = (str(error).strip().splitlines() or [""])[0]
                self.remarks.append(f"{node.name} cannot be lowered alone: {type(error).__name__}: {reason}")
                return
            if not compared.passed:
                raise _StopObservation(_ObservedNode(node, args, kwargs, value, compared))

        return self._look(attempt) if wanted else None

    def observed(self, name: str) -> _ObservedNode:
        """Return the node ``name`` with its arguments and value in eager PyTorch."""

        def look(node: fx.Node, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> None:
            if node.name == name:
                raise _StopObservation(_ObservedNode(node, args, kwargs, value))

        seen = self._look(look)
        assert seen is not None
        return seen

    def _look(self, observe: Observer) -> _ObservedNode | None:
        try:
            self.eager(observe)
        except _StopObservation as found:
            return found.observed
        return None

    def divergence(
        self, observed: _ObservedNode, cause: DivergenceCause, compared: Compared, otherwise: Comparison | None = None
    ) -> Divergence:
        """Return the `Divergence` of a node."""
        nodes = nodes_by_name(self.program)
        own = [
            comparison for name, comparison in compared.items() if source_node(nodes[name]) is nodes[observed.node.name]
        ]
        inside = next((comparison for comparison in own if not comparison.passed), None)
        comparison = inside or observed.single_op or otherwise
        assert comparison is not None
        order = list(nodes)
        before = set(order[: order.index(observed.node.name)])
        script = None
        if cause is DivergenceCause.ITSELF and isinstance(self.backend, str):
            try:
                script = self._script(observed)
            except UsageError as error:  # as on a full disk
                self.remarks.append(str(error))
        return Divergence(
            **describe(observed.node, observed.args, dict(observed.kwargs), observed.value),
            cause=cause,
            comparison=comparison,
            backend=self.load(self.subject).name,
            agreeing=sum(comparison.passed for name, comparison in compared.items() if name in before),
            remarks=tuple(self.remarks),
            script=script,
        )

    def _script(self, observed: _ObservedNode) -> Path | None:
        assert isinstance(self.backend, str)
        call = NodeCall.of(observed.node, observed.args, observed.kwargs)
        rules = self.subject.options.decompositions
        table: dict[Any, Callable[..., Any]] = {}
        extra: dict[Any, Callable[..., Any]] = {}
        if rules.table is not None or rules.extra:
            recording = None if rules.table is None else _recording(rules.table, table)
            recorded = replace(rules, table=recording, extra=_recording(rules.extra, extra))
            self.relower(call.module, call.inputs, recorded)
        used = replace(rules, table=None if rules.table is None else table, extra=extra)
        options = replace(self.subject.options, decompositions=used)
        return write_script(observed.node.name, call, options, self.backend, self.tolerance)


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


def _mismatch(check: Check) -> Comparison:
    return next(output.comparison for output in check.outputs if not output.comparison.passed)


def _recording(
    table: Mapping[Any, Callable[..., Any]], used: dict[Any, Callable[..., Any]]
) -> dict[Any, Callable[..., Any]]:
    """Return ``table`` with functions that record themselves in ``used`` when applied."""

    def recorded(key: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(rule)
        def apply(*args: Any, **kwargs: Any) -> Any:
            used[key] = rule
            return rule(*args, **kwargs)

        return apply

    return {key: recorded(key, rule) for key, rule in table.items()}

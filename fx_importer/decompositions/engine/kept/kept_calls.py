"""Calls of kept operators in a program: errors with the user's lines, remarks and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import fx
from torch.export import ExportedProgram

from fx_importer.decompositions.engine.kept.fault_table import Severity
from fx_importer.decompositions.engine.kept.kept_rule import KeptRule, WrongWhenKept, notes
from fx_importer.decompositions.engine.local.example_values import example_values
from fx_importer.decompositions.engine.local.operator_properties import functional_form
from fx_importer.diagnostics.mlir_diagnostics import unsupported_node_at
from fx_importer.diagnostics.remarks import Deviation
from fx_importer.errors import KeptOperatorError, KeptOperatorWarning, UnsupportedNode
from fx_importer.fx_graph.aliasing import graphs_of


@contextmanager
def noting_kept_operators(program: ExportedProgram, remark: Callable[[str], None] | None) -> Iterator[None]:
    """Pass what rules note of kept operators in the body on, as remarks, and as warnings of finite results.

    Raises:
        KeptOperatorError: for `WrongWhenKept`, with the line of the user's program.
    """
    try:
        with passing_notes(remark):
            yield
    except WrongWhenKept as wrong:
        node = wrong.node or _call_of(wrong.operator, program)
        name = str(wrong.operator)
        call = (
            UnsupportedNode(name, wrong.sentence)
            if node is None
            else unsupported_node_at(node, f"{node.name} = {name}", wrong.sentence)
        )
        raise KeptOperatorError(call, name) from None


@contextmanager
def passing_notes(remark: Callable[[str], None] | None) -> Iterator[None]:
    """Pass what `check_kept` notes in the body on, as remarks, and as warnings of finite results."""
    with notes() as collected:
        yield
    for sentence, severity in collected.items():
        warned = severity in (Severity.WRONG, Severity.INEXACT)
        if remark is not None:
            remark(Deviation(sentence) if warned else sentence)
        if warned:
            warnings.warn(sentence, KeptOperatorWarning, stacklevel=5)


def check_undecomposed(program: ExportedProgram, rules: Mapping[Any, Callable[..., Any]]) -> None:
    """Check the calls of operators in a program that is left as it is, by those of ``rules`` that keep operators."""
    kept = {operator: rule for operator, rule in rules.items() if isinstance(rule, KeptRule)}
    if kept:
        for node in (node for graph in graphs_of(program.graph_module) for node in graph.nodes):
            if node.target in kept:
                kept[node.target](*example_values(node.args, {}), **example_values(node.kwargs, {}))


def _call_of(operator: Any, program: ExportedProgram) -> fx.Node | None:
    """Return the first call of ``operator``, or of its in-place form."""
    nodes = (node for graph in graphs_of(program.graph_module) for node in graph.nodes if node.op == "call_function")
    return next((node for node in nodes if operator in (node.target, _functional(node.target))), None)


def _functional(target: Any) -> Any:
    return functional_form(target) if hasattr(target, "_schema") else None

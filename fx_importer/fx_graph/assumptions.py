"""Assumptions of a captured program: answers that Python code got from the values of tensors, checked at each call.

An assumption is a node of the program, ``aten._assert_async.msg``, whose message starts with `PREFIX`. So it survives
rewrites, and files of the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.assumption_messages import END, PREFIX
from fx_importer.fx_graph.operators import aten

FROZEN = "fx_importer.frozen"
"""Key of the metadata of graph modules: the names of the buffers that decided a branch and are constants."""


@dataclass(frozen=True)
class Assumption:
    """A condition that holds for the example inputs."""

    node: fx.Node
    """The assertion. Its first argument is a boolean tensor of rank 0."""

    @property
    def text(self) -> str:
        """The expression, its value and the place in the model."""
        return str(self.node.args[1]).removeprefix(PREFIX).removesuffix(END)


def is_assumption(node: fx.Node) -> bool:
    """Return whether ``node`` is the assertion of an assumption."""
    return node.target is aten._assert_async.msg and str(node.args[1]).startswith(PREFIX)


def assumptions_of(program: ExportedProgram) -> list[Assumption]:
    """Return the assumptions of ``program``, outside of its control flow, in order."""
    return [Assumption(node) for node in program.graph.nodes if is_assumption(node)]


def nested_assumptions(program: ExportedProgram) -> Iterator[Assumption]:
    """Yield the assumptions of the graphs of control flow in ``program``."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule) and module is not program.graph_module:
            yield from (Assumption(node) for node in module.graph.nodes if is_assumption(node))


def assumption_texts(programs: Mapping[str, ExportedProgram]) -> list[str]:
    """Return the texts of the assumptions of ``programs``, each once."""
    texts = (
        assumption.text
        for program in programs.values()
        for assumption in (*assumptions_of(program), *nested_assumptions(program))
    )
    return list(dict.fromkeys(texts))

"""Assumptions about buffers that no call changes: they are checked once, when the program is lowered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.node import map_arg

from fx_importer.diagnostics.remarks import WeightsRead
from fx_importer.errors import UsageError
from fx_importer.frontend.fake_weights import is_fake_or_meta
from fx_importer.fx_graph.assumptions import FROZEN, assumptions_of
from fx_importer.fx_graph.programs import as_node_dtype, held_value, is_weight, mutated_state, with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.options import Weights

_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Remove assumptions that depend on constants of the module only, and record these constants.

    Raises:
        UsageError: if one does not hold: the values have changed since the capture.
    """
    if not assumptions_of(program):
        return program
    program = with_rewritten_graphs(program, lambda graph, owner: None, in_place=context.owns(program))
    state = set[str]().union(*map(mutated_state, context.programs.values()))
    constants = _constants(program, state, context.options.importing.weights)
    frozen: dict[str, None] = dict.fromkeys(program.graph_module.meta.get(FROZEN, ()))
    for assumption in assumptions_of(program):
        cone = _Cone({node: value for node, (_, value) in constants.items()})
        condition: Any = assumption.node.args[0]
        if not cone.computes(condition):
            continue
        if not bool(cone.values[condition]):
            raise UsageError(
                f"the program was captured with {assumption.text}, and the values of its buffers have changed since: "
                "capture the model again"
            )
        frozen |= {constants[node][0]: None for node in constants if node in cone.read}
        program.graph.erase_node(assumption.node)
    program.graph_module.meta[FROZEN] = tuple(frozen)
    if parameters := frozen.keys() & {*program.graph_signature.parameters}:
        context.remark(WeightsRead(parameters))
    return program


def _constants(
    program: ExportedProgram, state: Collection[str], weights: Weights
) -> dict[fx.Node, tuple[str, torch.Tensor]]:
    """Return the name and the value of each constant of the module, by placeholder."""
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    constants: dict[fx.Node, tuple[str, torch.Tensor]] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind not in _HELD or spec.target is None or spec.target in state:
            continue
        value = held_value(program, spec)
        outside = weights is not Weights.INLINE and is_weight(spec, value)
        if isinstance(value, torch.Tensor) and not outside and not is_fake_or_meta(value):
            constants[nodes[spec.arg.name]] = spec.target, as_node_dtype(nodes[spec.arg.name], value)
    return constants


class _Cone:
    """Computes nodes that depend on constants only."""

    def __init__(self, constants: Mapping[fx.Node, torch.Tensor]):
        self.values: dict[fx.Node, Any] = {}
        self.read: set[fx.Node] = set()
        """The constants that were used."""
        self._constants = constants

    def computes(self, node: Any) -> bool:
        """Compute ``node``; return whether it depends on constants only."""
        if not isinstance(node, fx.Node):
            return False
        todo, cone = [node], dict[fx.Node, None]()
        while todo:
            source = todo.pop()
            cone.pop(source, None)
            cone[source] = None
            if source not in self._constants:
                if not isinstance(source.target, OpOverload) or _has_effects(source):
                    return False
                todo += source.all_input_nodes
        with torch.no_grad():
            for source in reversed(cone):
                if source in self._constants:
                    self.read.add(source)
                    self.values[source] = self._constants[source]
                else:
                    args, kwargs = map_arg((source.args, source.kwargs), self.values.__getitem__)
                    self.values[source] = source.target(*args, **kwargs)  # type: ignore[operator]
        return True


def _has_effects(node: fx.Node) -> bool:
    target = node.target
    assert isinstance(target, OpOverload)
    return target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags or node.is_impure()


FREEZE_ASSUMPTIONS = FxPass("freeze-assumptions", _run)
"""Assumptions about constants of the module."""

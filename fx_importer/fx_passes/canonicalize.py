"""Canonicalization of an exported program: assertions, empty tensors, strides, overloads, identities."""

from __future__ import annotations

from functools import partial

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.diagnostics.progress import counted
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_graph.regions import inline_regions
from fx_importer.fx_passes.as_strided import rewrite_strides
from fx_importer.fx_passes.empty_tensors import fold_empty
from fx_importer.fx_passes.identities import IDENTITIES
from fx_importer.fx_passes.node_rewriting import NodeRewrites, emit, rewrite_nodes
from fx_importer.fx_passes.overloads import OVERLOADS
from fx_importer.fx_passes.rank_zero import RANK_ZERO

# Implied by the program's range constraints, or true of every input that the program was exported for.
ASSERTIONS = frozenset(
    (
        *(aten._assert_scalar.default, aten._assert_tensor_metadata.default, aten._assert_async.msg),
        *(aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default),
    )
)

PASSES: tuple[NodeRewrites, ...] = (RANK_ZERO, OVERLOADS, IDENTITIES)
"""In order, after strides, which are as traced until a pass rewrites the graph. Identities show once overloads are
unified."""


def canonicalize(program: ExportedProgram, *, assertions: bool = False, in_place: bool = False) -> ExportedProgram:
    """Return ``program`` in normal form. The given program is not changed; the weights are shared.

    ``assertions`` keeps the program's assertions. ``in_place`` rewrites the graphs of ``program`` instead of copies of
    them; ``program`` must not be used afterwards.
    """
    return with_rewritten_graphs(program, partial(_canonicalize, assertions=assertions), in_place=in_place)


def _canonicalize(graph: fx.Graph, owner: fx.GraphModule, *, assertions: bool) -> None:
    inline_regions(graph, owner)
    for node in graph.nodes:
        if node.target is torch.ops.higher_order.with_effects and node.args[1] is aten._linalg_check_errors.default:
            _check(node)
    for node in graph.nodes:
        if node.target in ASSERTIONS and not assertions:
            graph.erase_node(node)
    if not any(is_in_place(node) for node in graph.nodes):
        fold_empty(graph)
        rewrite_strides(graph)
        for rules in counted(PASSES, "passes"):
            rewrite_nodes(graph.nodes, rules)
    graph.eliminate_dead_code()


def _check(effect: fx.Node) -> None:
    """Replace ``with_effects(token, _linalg_check_errors, info, name)`` by an assertion that ``info`` is all zeros."""
    token, _, info, name = effect.args
    failed = emit(effect, aten.any.default, emit(effect, aten.ne.Scalar, info, 0))
    emit(effect, aten._assert_async.msg, emit(effect, aten.logical_not.default, failed), f"{name} failed")
    for user in list(effect.users):  # of the token; the operator has no result
        user.replace_all_uses_with(token)  # type: ignore[arg-type]
        effect.graph.erase_node(user)
    effect.graph.erase_node(effect)


def is_in_place(node: fx.Node) -> bool:
    """Return whether ``node`` mutates one of its arguments; a copy is then no identity."""
    if not isinstance(node.target, OpOverload) or node.target is aten.detach_.default:  # does not change values
        return False
    return node.target._schema.is_mutable

"""Carries an exported program to normal form."""

from __future__ import annotations

from functools import partial

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.canonicalization.as_strided import STRIDES
from fx_importer.canonicalization.empty_tensors import fold_empty
from fx_importer.canonicalization.identities import IDENTITIES
from fx_importer.canonicalization.node_rewriting import Rules, emit
from fx_importer.canonicalization.overloads import SPELLINGS
from fx_importer.canonicalization.rank_zero import RANK_ZERO
from fx_importer.diagnostics.progress import counted
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_graph.regions import inline_regions

# What these say is in the program's range constraints, or holds for any input that the program was exported for.
ASSERTIONS = frozenset(
    (
        *(aten._assert_scalar.default, aten._assert_tensor_metadata.default, aten._assert_async.msg),
        *(aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default),
    )
)

PASSES: tuple[Rules, ...] = (STRIDES, RANK_ZERO, SPELLINGS, IDENTITIES)
"""In order: strides are as traced only until others touch the graph; identities show once things are spelled alike."""


def canonicalize(program: ExportedProgram, *, assertions: bool = False, in_place: bool = False) -> ExportedProgram:
    """Return ``program`` in normal form; the given program is left alone, the weights are shared.

    ``assertions`` keeps what the program asserts. ``in_place`` lets the graphs of ``program`` be changed, rather than
    copied: it is then not to be used any more.
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
        for rules in counted(PASSES, "passes"):
            _apply(rules, graph)
    graph.eliminate_dead_code()


def _check(effect: fx.Node) -> None:
    """Make an assertion of ``with_effects(token, _linalg_check_errors, info, name)``: ``info`` is zeros."""
    token, _, info, name = effect.args
    failed = emit(effect, aten.any.default, emit(effect, aten.ne.Scalar, info, 0))
    emit(effect, aten._assert_async.msg, emit(effect, aten.logical_not.default, failed), f"{name} failed")
    for user in list(effect.users):  # the token; there is no result
        user.replace_all_uses_with(token)  # type: ignore[arg-type]
        effect.graph.erase_node(user)
    effect.graph.erase_node(effect)


def is_in_place(node: fx.Node) -> bool:
    """Return whether ``node`` writes to one of its arguments: then a copy of it is not the same as itself."""
    if not isinstance(node.target, OpOverload) or node.target is aten.detach_.default:  # which leaves the values alone
        return False
    return node.target._schema.is_mutable


def _apply(rules: Rules, graph: fx.Graph) -> None:
    for node in graph.nodes:
        rule = rules.get(node.target) if node.op == "call_function" else None
        if rule is not None and (replacement := rule(node)) is not None:
            node.replace_all_uses_with(replacement)
            graph.erase_node(node)

"""Removal of assertions, which the range constraints of a program imply, or which hold for all of its inputs."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.fx_graph.assumptions import is_assumption
from fx_importer.fx_graph.emission import emit
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass

ASSERTIONS = frozenset(
    (
        *(aten._assert_scalar.default, aten._assert_tensor_metadata.default, aten._assert_async.msg),
        *(aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default),
    )
)


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Write checks of errors as assertions, and remove assertions unless ``runtime_asserts`` keeps them."""
    keep = context.options.importing.runtime_asserts

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        for node in graph.nodes:
            if node.target is torch.ops.higher_order.with_effects and node.args[1] is aten._linalg_check_errors.default:
                _check(node)
        for node in graph.nodes:
            if node.target in ASSERTIONS and not keep and not is_assumption(node):
                graph.erase_node(node)

    return with_rewritten_graphs(program, rewrite, in_place=context.owns(program))


def _check(effect: fx.Node) -> None:
    """Replace ``with_effects(token, _linalg_check_errors, info, name)`` by an assertion that ``info`` is all zeros."""
    token, _, info, name = effect.args
    failed = emit(effect, aten.any.default, emit(effect, aten.ne.Scalar, info, 0))
    emit(effect, aten._assert_async.msg, emit(effect, aten.logical_not.default, failed), f"{name} failed")
    for user in list(effect.users):  # of the token; the operator has no result
        user.replace_all_uses_with(token)  # type: ignore[arg-type]
        effect.graph.erase_node(user)
    effect.graph.erase_node(effect)


REMOVE_ASSERTIONS = FxPass("remove-assertions", _run)

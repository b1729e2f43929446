"""Tracing of an exported program again by torch, with decompositions."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch._export import utils as export_utils
from torch._export.verifier import SpecViolationError
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from fx_importer.frontend.torch_patches import (
    COMPOSITES,
    IS_COMPOSITE,
    OVERRIDDEN_AUTOGRAD_KEYS,
    OVERRIDDEN_KEYS,
    Patch,
    patched,
    tracing,
    warnings_filtered,
)
from fx_importer.fx_graph.aliasing import UNDECLARED_VIEWS
from fx_importer.fx_graph.emission import emit
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_graph.regions import with_lifted_constants
from fx_importer.fx_graph.view_writes import with_direct_writes


@tracing()
def run_decompositions(
    program: ExportedProgram,
    rules: dict[Any, Callable[..., Any]],
    *,
    launch_kernels: bool = False,
    keep_composites: bool = False,
) -> ExportedProgram:
    """Return ``program`` in functional form, traced again by torch with ``rules``.

    With ``launch_kernels``, operators of ``torch.library.triton_op`` become the launches of their kernels. With
    ``keep_composites``, composite operators that another operator calls are kept too, as torch does; it takes longer.

    Raises:
        UnsupportedProgramError: as `with_direct_writes` does.
    """
    program = with_lifted_constants(_with_contiguous_branches(with_direct_writes(program)))
    program = _without_guards_on_bases(program)
    _forget_pending_symbols(program)
    # torch 2.13 copies pytree specs in a way that it warns of itself.
    copies = warnings_filtered("ignore", ".*isinstance\\(treespec, LeafSpec\\)", FutureWarning)
    with copies, patched({} if keep_composites else _few_overrides(program, rules)):
        try:
            return program.run_decompositions(rules, decompose_custom_triton_ops=launch_kernels)
        except SpecViolationError:
            program = with_rewritten_graphs(program, lambda graph, _: _copy_sources(graph))
            return program.run_decompositions(rules, decompose_custom_triton_ops=launch_kernels)


def _copy_sources(graph: fx.Graph) -> None:
    """Copy the source of every ``copy_``: two states with the same new value need a result each.

    torch's signature knows the new value of a state by the name of its node.
    """
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        node.update_arg(1, emit(node, aten.clone.default, node.args[1]))


def _forget_pending_symbols(program: ExportedProgram) -> None:
    """Forget fresh data-dependent sizes that an earlier lowering of ``program`` left, and that are in no graph.

    torch would miss them in the traced graph: "Pending unbacked symbols not in returned outputs".
    """
    values = tree_leaves([node.meta.get("val") for node in program.graph.nodes])
    for shapes in {value.fake_mode.shape_env for value in values if isinstance(value, FakeTensor)}:
        if shapes is not None:
            shapes.pending_fresh_unbacked_symbols.clear()


def _modules(program: ExportedProgram) -> list[fx.GraphModule]:
    return [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]


def _with_contiguous_branches(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with contiguous results of branches of ``cond``.

    Tracing wants the strides of both branches in the same order, and decompositions change strides.
    """
    branches = {
        owner.get_submodule(branch.target)
        for owner in _modules(program)
        for cond in owner.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
        for branch in cond.args[1:3]
    }

    def copy_results(graph: fx.Graph, owner: fx.GraphModule) -> None:
        results = graph.output_node()
        for result in results.all_input_nodes if owner in branches else ():
            if isinstance(result.meta.get("val"), torch.Tensor):
                with graph.inserting_before(results):
                    copy = graph.call_function(
                        aten.clone.default, (result,), {"memory_format": torch.contiguous_format}
                    )
                copy.meta.update(result.meta)
                results.replace_input_with(result, copy)

    return with_rewritten_graphs(program, copy_results) if branches else program


def _without_guards_on_bases(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` without guards on the tensor that an example input was a view of: tracing lacks it, and fails.

    torch 2.13 adds them for views with dynamic sizes, and of ``view_as_complex``.
    """
    guards = vars(program).get("_guards_code", ())  # another torch has none
    kept = [guard for guard in guards if "._base." not in guard]
    if len(kept) == len(guards):
        return program
    program = copy.copy(program)
    vars(program)["_guards_code"] = kept
    return program


def _few_overrides(program: ExportedProgram, rules: Mapping[Any, object]) -> dict[Patch, Any]:
    """Make torch override only the composite operators of ``program`` and ``rules``, and only on CPU and meta.

    Composites that return views without declaring them are decomposed: kept, writes to their results would be lost.
    """
    if not all(patch.exists() for patch in (COMPOSITES, IS_COMPOSITE, OVERRIDDEN_KEYS, OVERRIDDEN_AUTOGRAD_KEYS)):
        return {}  # another torch
    nodes = [node for module in _modules(program) for node in module.graph.nodes]
    operators = {rule for rule in (*rules, *(node.target for node in nodes)) if isinstance(rule, OpOverload)}
    composites = {operator for operator in operators if _is_composite(operator)} - (UNDECLARED_VIEWS - rules.keys())
    values: dict[Patch, Any] = {COMPOSITES: lambda: composites, IS_COMPOSITE: _is_composite}
    tensors = (leaf for node in nodes for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor))
    if all(tensor.device.type in ("cpu", "meta") for tensor in tensors):
        keys = torch._C.DispatchKey
        values[OVERRIDDEN_KEYS] = [keys.CPU, keys.Meta]
        values[OVERRIDDEN_AUTOGRAD_KEYS] = [keys.AutogradCPU, keys.AutogradMeta]
    return values


_is_composite = functools.cache(export_utils._is_preservable_cia_op)

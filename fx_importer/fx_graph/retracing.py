"""Tracing of an exported program again by torch, with decompositions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._export import utils as export_utils
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram, exported_program
from torch.utils._pytree import tree_leaves

from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs


def run_decompositions(
    program: ExportedProgram, rules: dict[Any, Callable[..., Any]], *, launch_kernels: bool = False
) -> ExportedProgram:
    """Return ``program`` in functional form, traced again by torch with ``rules``.

    With ``launch_kernels``, operators of ``torch.library.triton_op`` become the launches of their kernels.
    """
    program = _with_contiguous_branches(program)
    _forget_pending_symbols(program)
    with warnings.catch_warnings(), _few_overrides(program, rules), _no_guards_on_bases(program):
        # torch 2.13 copies pytree specs in a way that it warns of itself.
        warnings.filterwarnings("ignore", message=".*isinstance\\(treespec, LeafSpec\\)", category=FutureWarning)
        return program.run_decompositions(rules, decompose_custom_triton_ops=launch_kernels)


def _forget_pending_symbols(program: ExportedProgram) -> None:
    """Forget fresh sizes that depend on values and are in no graph: those of an earlier lowering of ``program``.

    torch would miss them in what it traces: "Pending unbacked symbols not in returned outputs".
    """
    values = tree_leaves([node.meta.get("val") for node in program.graph.nodes])
    for shapes in {each.fake_mode.shape_env for each in values if isinstance(each, FakeTensor)}:
        if shapes is not None:
            shapes.pending_fresh_unbacked_symbols.clear()


def _modules(program: ExportedProgram) -> list[fx.GraphModule]:
    return [each for each in program.graph_module.modules() if isinstance(each, fx.GraphModule)]


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


@contextmanager
def _no_guards_on_bases(program: ExportedProgram) -> Iterator[None]:
    """Leave out guards on the tensor that an example input was a view of: tracing has no such tensor, and fails.

    torch 2.13 makes them for views with dynamic sizes, and of ``view_as_complex``.
    """
    if not hasattr(program, "_guards_code"):  # another torch
        yield
        return
    guards = [each for each in program._guards_code if "._base." not in each]
    with mock.patch.object(program, "_guards_code", guards):
        yield


@contextmanager
def _few_overrides(program: ExportedProgram, rules: Mapping[Any, object]) -> Iterator[None]:
    """Let torch override only those composite operators that ``program`` or ``rules`` have, and only on CPU and meta.

    It would override about 800, for eleven dispatch keys each, which takes longer than to trace a small program.
    """
    if not all(hasattr(exported_program, name) for name in _OVERRIDES):  # another torch
        yield
        return
    nodes = [node for module in _modules(program) for node in module.graph.nodes]
    operators = {each for each in (*rules, *(node.target for node in nodes)) if isinstance(each, OpOverload)}
    composites = {each for each in operators if _is_composite(each)}
    changed: dict[str, Any] = {
        "_collect_all_valid_cia_ops": lambda: composites,
        "_is_preservable_cia_op": _is_composite,
    }
    tensors = (each for node in nodes for each in tree_leaves(node.meta.get("val")) if isinstance(each, torch.Tensor))
    if all(each.device.type in ("cpu", "meta") for each in tensors):
        keys = torch._C.DispatchKey
        changed["_BACKEND_KEYS_TO_OVERRIDE"] = [keys.CPU, keys.Meta]
        changed["_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE"] = [keys.AutogradCPU, keys.AutogradMeta]
    with mock.patch.multiple(exported_program, **changed):
        yield


_OVERRIDES = (
    "_collect_all_valid_cia_ops",
    "_is_preservable_cia_op",
    "_BACKEND_KEYS_TO_OVERRIDE",
    "_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE",
)
"""What decides which operators torch's ``run_decompositions`` overrides, and for which dispatch keys."""

_is_composite = functools.cache(export_utils._is_preservable_cia_op)

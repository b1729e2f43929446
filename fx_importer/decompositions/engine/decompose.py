"""Application of a decomposition table to an exported program, and decomposition of composites that have a CPU kernel.

Its views become reshapes: ``torch.export`` records a ``view`` where eager's strides allow one, and a rule may compute
the same values with other strides, as the rule of attention does. MLIR tensors have no strides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from fx_importer.decompositions.backward.max_pool_backward import scatter_foreign_indices
from fx_importer.decompositions.engine.kept.kept_calls import check_undecomposed, noting_kept_operators
from fx_importer.decompositions.engine.list_mutations import expand_writes_to_lists, writes_to_list
from fx_importer.decompositions.engine.local import RetraceRequired, decompose_locally
from fx_importer.decompositions.engine.loop_operands import is_loop, separate_operands
from fx_importer.decompositions.engine.shape_generic import ShapeGenericRules, allow_guards_of_metadata
from fx_importer.decompositions.engine.table import DecompositionTable, overloads
from fx_importer.decompositions.nn.flex_attention import decompose_flex_attention
from fx_importer.errors import UsageError
from fx_importer.frontend.recurrent_states import recurrent_states_of_eager
from fx_importer.frontend.torch_patches import tracing
from fx_importer.fx_graph.aliasing import aliases_of_mutated, graphs_of, is_functional, mutated_arguments
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import (
    empty_on,
    fake_mode_of,
    storage_view_key,
    with_rewritten_graphs,
    with_tensors,
)
from fx_importer.fx_graph.regions import with_inlined_regions
from fx_importer.fx_graph.retracing import run_decompositions
from fx_importer.fx_graph.triton_runtime import is_triton_operator, traceable_kernels


@tracing()
def decompose(
    program: ExportedProgram,
    table: Mapping[Any, Callable[..., Any]],
    remark: Callable[[str], None] | None = None,
) -> ExportedProgram:
    """Return ``program`` in functional form, with the operators of ``table`` decomposed to the fixpoint.

    A key is an overload, or a packet, which stands for all its overloads; an overload takes precedence over its packet.
    If torch has to trace the whole program again, ``remark`` is called with the reason.

    Raises:
        UsageError: if a key is not an operator, or a value is not callable.
        UnsupportedProgramError: if an operator is kept for a C++ lowering that is wrong for one of its calls.
    """
    program = prepare(program)
    expanded = expand_packets(table)
    with noting_kept_operators(program, remark):
        if not expanded.decomposed and is_functional(program):
            check_undecomposed(program, expanded.rules)
            return program
        return _decomposed(program, expanded, remark)


def decompose_calls(
    program: ExportedProgram, table: Mapping[Any, Callable[..., Any]], remark: Callable[[str], None] | None = None
) -> ExportedProgram:
    """Return ``program`` in functional form, with the operators of ``table`` decomposed and all others as they are."""
    return _decomposed(prepare(program), expand_packets(table), remark)


def _decomposed(
    program: ExportedProgram, table: DecompositionTable, remark: Callable[[str], None] | None
) -> ExportedProgram:
    """Return ``program`` with the rules of ``table`` applied, node by node if possible."""
    rules: Mapping[Any, Callable[..., Any]] = table.rules
    program = scatter_foreign_indices(program, rules)
    mode = fake_mode_of(program.graph)
    if mode is not None and mode.shape_env is not None:
        rules = ShapeGenericRules(rules, mode.shape_env)
    with traceable_kernels(), recurrent_states_of_eager():
        try:
            return decompose_locally(program, rules, table.recorded)
        except RetraceRequired as reason:
            if remark is not None:
                remark(f"the whole program was traced again: {reason}")
        return retrace(program, rules)


@tracing()
def prepare(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program`` without ``flex_attention``, regions such as ``no_grad``, and writes to lists.

    Operands of a loop do not share memory. Operators defined with ``torch.library.triton_op`` become the launches of
    their kernels.
    """
    program = decompose_flex_attention(program)
    if any(is_triton_operator(node.target) for graph in graphs_of(program.graph_module) for node in graph.nodes):
        with traceable_kernels(), recurrent_states_of_eager():
            program = run_decompositions(program, {}, launch_kernels=True)
    program = with_inlined_regions(program)  # torch would trace them as opaque calls, and lose the user's source lines
    if any(map(writes_to_list, program.graph.nodes)):
        program = with_rewritten_graphs(program, expand_writes_to_lists)
    if any(_converts_number(node) for node in program.graph.nodes):
        program = with_rewritten_graphs(program, _numbers_to_tensors)
    if any(is_loop(node) for graph in graphs_of(program.graph_module) for node in graph.nodes):
        program = with_rewritten_graphs(program, separate_operands)
    return program


_DTYPE_CHECK = torch.ops.aten._assert_tensor_metadata.default


def _without_dtype_checks(graph: fx.Graph, _: fx.GraphModule) -> None:
    """Erase checks of dtypes: export has made them, for ``pow`` of two bools of another dtype than eager's."""
    for node in graph.find_nodes(op="call_function", target=_DTYPE_CHECK):
        graph.erase_node(node)


def _converts_number(node: fx.Node) -> bool:
    return node.target is torch.ops.aten._to_copy.default and isinstance(node.args[0], int | float)


def _numbers_to_tensors(graph: fx.Graph, owner: fx.GraphModule) -> None:
    """Replace ``_to_copy`` of a Python number, which ``vmap`` leaves in graphs, by ``full``."""
    for node in filter(_converts_number, graph.nodes):
        node.target, node.args = torch.ops.aten.full.default, ([], node.args[0])
        node.kwargs = {"dtype": node.meta["val"].dtype}


def retrace(program: ExportedProgram, rules: Mapping[Any, Callable[..., Any]]) -> ExportedProgram:
    """Return ``program`` traced again by ``ExportedProgram.run_decompositions`` with ``rules``."""
    program = inline_composites(with_rewritten_graphs(program, _without_dtype_checks), rules)
    with allow_guards_of_metadata():
        traced = run_decompositions(views_to_reshapes(with_tensors(program, _fake_cpu_tensors(program))), {**rules})
    tensors = {**program.constants, **program.state_dict}
    return with_tensors(traced, {name: tensor for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)})


def _fake_cpu_tensors(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Return a fake CPU tensor, as in the nodes' metadata, for each meta tensor of ``program``."""
    tensors = {**program.constants, **program.state_dict}
    on_meta = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor) and tensor.is_meta}
    made: dict[Any, torch.Tensor] = {}
    mode = fake_mode_of(program.graph) or FakeTensorMode()
    for tensor in on_meta.values():
        if (key := storage_view_key(tensor)) not in made:
            made[key] = empty_on(tensor, torch.device("cpu"), mode)
    return {name: made[storage_view_key(tensor)] for name, tensor in on_meta.items()}


def expand_packets(table: Mapping[Any, Callable[..., Any]]) -> DecompositionTable:
    """Return ``table`` with each packet expanded to its overloads; an overload takes precedence over its packet.

    Raises:
        UsageError: if a key is not an operator, or a value is not callable.
    """
    if isinstance(table, DecompositionTable):
        return table
    packets: dict[Any, Callable[..., Any]] = {}
    exact: dict[Any, Callable[..., Any]] = {}
    for operator, rule in table.items():
        if not callable(rule):
            raise UsageError(f"the decomposition of {operator} is not a function but {rule!r}")
        if isinstance(operator, OpOverload | HigherOrderOperator):
            exact[operator] = rule
        else:
            packets.update(dict.fromkeys(overloads([operator]), rule))
    return DecompositionTable(packets | exact, because="given in decomposition_table")


def views_to_reshapes(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program``, sharing its weights, with each ``view`` replaced by ``reshape``.

    A reshape may copy, so a program that mutates memory under a view is made functional first.
    """
    graphs = list(graphs_of(program.graph_module))
    if not any(_views(graph) for graph in graphs):
        return program
    if len(graphs) > 1:
        written = [node for graph in graphs for node in graph.nodes if mutated_arguments(node)]
    else:
        written = aliases_of_mutated(graphs[0]).intersection(_views(graphs[0]))
    if written:
        program = run_decompositions(program, {})
    return with_rewritten_graphs(program, _to_reshapes)


def _views(graph: fx.Graph) -> list[fx.Node]:
    return graph.find_nodes(op="call_function", target=aten.view.default, sort=False)


def _to_reshapes(graph: fx.Graph, owner: fx.GraphModule) -> None:
    del owner
    for node in _views(graph):
        node.target = aten.reshape.default


Rules = Mapping[Any, Callable[..., Any]]


def inline_composites(program: ExportedProgram, rules: Rules) -> ExportedProgram:
    """Return a copy of ``program`` with ``rules`` applied to such operators."""
    modules = [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    if not any(_is_kept_by_torch(node, rules) for module in modules for node in module.graph.nodes):
        return program
    return with_rewritten_graphs(program, partial(_inline, rules))


def _is_kept_by_torch(node: fx.Node, rules: Rules) -> bool:
    operator = node.target
    if not isinstance(operator, OpOverload) or operator not in rules or operator._schema.is_mutable:
        return False
    composite, cpu = (
        torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key)
        for key in ("CompositeImplicitAutograd", "CPU")
    )
    return cpu and (composite or torch._C.DispatchKey.CompositeImplicitAutograd in operator.py_kernels)


class _NoRule(Exception):
    """The rule does not apply to these arguments."""


def _inline(rules: Rules, graph: fx.Graph, owner: fx.GraphModule) -> None:
    del owner
    for node in [call for call in graph.nodes if _is_kept_by_torch(call, rules)]:
        inputs = node.all_input_nodes
        examples = [operand.meta["val"] for operand in inputs]
        mode = next((example.fake_mode for example in examples if isinstance(example, FakeTensor)), None)
        if mode is None:
            continue

        def compute(*values: Any, node: fx.Node = node, inputs: list[fx.Node] = inputs) -> Any:
            known = dict(zip(inputs, values, strict=True))
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            result = rules[node.target](*args, **kwargs)
            if result is NotImplemented:
                raise _NoRule
            return result

        try:
            with torch.no_grad(), mode:
                traced = make_fx(compute)(*examples)
        except _NoRule:
            continue
        for copy in traced.graph.nodes:
            copy.meta["stack_trace"] = node.meta.get("stack_trace")
        placeholders = traced.graph.find_nodes(op="placeholder")
        with graph.inserting_before(node):
            result: Any = graph.graph_copy(traced.graph, dict(zip(placeholders, inputs, strict=True)))
        node.replace_all_uses_with(result)
        graph.erase_node(node)

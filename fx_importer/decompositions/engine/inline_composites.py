"""Decomposition of composite operators that also have a CPU kernel.

``run_decompositions`` ignores the rule of an operator with a ``CompositeImplicitAutograd`` kernel, in C++ or Python,
and a ``CPU`` kernel: it treats it as composite, and then runs the CPU kernel. So its rule is inlined beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from fx_importer.fx_graph.programs import with_rewritten_graphs

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
        for each in traced.graph.nodes:
            each.meta["stack_trace"] = node.meta.get("stack_trace")
        placeholders = traced.graph.find_nodes(op="placeholder")
        with graph.inserting_before(node):
            result: Any = graph.graph_copy(traced.graph, dict(zip(placeholders, inputs, strict=True)))
        node.replace_all_uses_with(result)
        graph.erase_node(node)

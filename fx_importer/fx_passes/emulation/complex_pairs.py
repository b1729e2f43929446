"""Complex tensors as pairs of real tensors, for output types without complex dtypes.

The decompositions have replaced complex arithmetic (`decompositions/emulation/complex/`); the operators that remain
split, join and move complex tensors. Each complex value becomes two real nodes, its *parts*. At the boundary of the
graph (an argument, a constant, a result, an operand of a loop) it is *joined*: one real tensor with a last axis of
two, as `torch.view_as_real` returns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_aggregate, map_arg

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedNode
from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten, prims
from fx_importer.fx_passes.emulation.complex_forms import Forms, Parts, broadcast, join, with_dtype, zeros
from fx_importer.fx_passes.emulation.signless_types import DATA_MOVEMENT, FILLS
from fx_importer.fx_passes.node_rewriting import remember_dtypes


class ComplexPairs:
    """Rewriting of graphs to real tensors; nodes that cannot be rewritten are collected in ``unsupported_nodes``.

    Args:
        real: the real dtype of the parts, by the complex dtype that is rewritten.
    """

    def __init__(self, real: Mapping[torch.dtype, torch.dtype]) -> None:
        self._real = real
        self.unsupported_nodes: list[UnsupportedNode] = []

    def rewrite(self, graph: fx.Graph, owner: fx.GraphModule) -> None:
        """Rewrite ``graph``."""
        del owner
        forms = Forms(graph, self._real)
        if any(map(forms.was_complex, graph.nodes)):
            remember_dtypes(graph)
            self.unsupported_nodes += _PairRewriting(forms, graph).unsupported_nodes


class _PairRewriting:
    """Rewriting of one graph."""

    def __init__(self, forms: Forms, graph: fx.Graph):
        self.unsupported_nodes: list[UnsupportedNode] = []
        self._forms = forms
        for node in list(graph.nodes):
            if node.op == "output":
                self._output(node)
            elif node.op != "call_function":
                if forms.was_complex(node):
                    node.meta["model_val"] = value_of(node)
                    forms.mark_joined(node)
            elif (part := self._selected_part(node)) is not None:
                node.replace_all_uses_with(part)
            elif any(map(forms.was_complex, (node, *node.all_input_nodes))):
                self._call(node)
        graph.eliminate_dead_code()

    def _output(self, node: fx.Node) -> None:
        """Join the complex results; each joined node keeps the model's value as ``model_val``."""

        def result(value: fx.Node) -> fx.Node:
            if not self._forms.was_complex(value) or value.op == "placeholder":
                return value
            joined = join(self._forms.parts(value, node), node)
            joined.meta["model_val"] = self._forms.values[value]
            return joined

        node.args = map_arg(node.args, result)

    def _selected_part(self, node: fx.Node) -> fx.Node | None:
        """Return the part that ``node`` selects from a joined node; None if it does something else."""
        source, *rest = node.args or (None,)
        if not isinstance(source, fx.Node) or (parts := self._forms.cached_slices(source)) is None:
            return None
        if node.target is operator.getitem:
            return parts[rest[0]]  # type: ignore[index]
        axis = value_of(source).dim() - 1
        if not rest or rest[0] not in (-1, axis):
            return None
        if node.target is aten.select.int and isinstance(rest[1], int):
            return parts[rest[1]]
        if node.target is aten.slice.Tensor and isinstance(rest[1], int) and value_of(node).shape[axis] == 1:
            return emit(node, aten.unsqueeze.default, parts[rest[1]], axis)
        if node.target is aten.unbind.int:
            self._forms.set_slices(node, parts)
        return None

    def _call(self, node: fx.Node) -> None:
        target: Any = node.target
        if (rule := REWRITES.get(target)) is not None:
            made = rule(self._forms, node)
            if isinstance(made, fx.Node):
                node.replace_all_uses_with(made)
            else:
                self._forms.set_parts(node, made)
        elif target is operator.getitem and not self._forms.has_parts(node.args[0]):
            self._forms.mark_joined(node)  # one of the results of a subgraph
        elif target in PARTWISE and self._forms.was_complex(node):
            self._forms.set_parts(node, (self._on_part(node, 0), self._on_part(node, 1)))
        elif target in SHAPE_ONLY and not self._forms.was_complex(node):
            node.replace_all_uses_with(self._on_part(node, 0))
        elif isinstance(target, OpOverload) and target.namespace in ("aten", "prims"):
            self._reject(node)
        else:  # a higher-order operator or a custom one
            for source in filter(self._forms.was_complex, node.all_input_nodes):
                node.replace_input_with(source, self._forms.joined(source, node))
            self._forms.mark_joined(node)

    def _reject(self, node: fx.Node) -> None:
        names = ", ".join(sorted(map(str, self._forms.complex_dtypes(node))))
        reason = f"it computes with tensors of {names}, and has no emulation by pairs of real tensors"
        self.unsupported_nodes.append(unsupported_node(node, reason))
        if self._forms.was_complex(node):
            self._forms.mark_joined(node)  # continue as if it were an argument, to report later nodes too

    def _on_part(self, node: fx.Node, part: int) -> fx.Node:
        """Emit the operator of ``node`` on one part: 0 is real, 1 imaginary."""
        target: Any = IMAGINARY_OPERATOR.get(node.target, node.target) if part else node.target
        real = self._forms.real[self._forms.complex_dtypes(node)[0]]

        def one(argument: Any, position: int | None) -> Any:
            if self._forms.was_complex(argument):
                return self._forms.parts(argument, node)[part]
            if isinstance(argument, torch.dtype):
                return self._forms.real.get(argument, argument)
            if position is not None and position == SCALAR_ARGUMENT.get(target):
                parts = (argument, 0) if isinstance(argument, fx.Node) else (argument.real, argument.imag)
                return parts[part]
            if isinstance(argument, fx.Node) and position in REAL_ARGUMENTS.get(target, ()):
                return zeros(argument, real, node) if part else with_dtype(argument, real, node)
            return argument

        args = [map_aggregate(argument, partial(one, position=at)) for at, argument in enumerate(node.args)]
        kwargs = {key: map_aggregate(argument, partial(one, position=None)) for key, argument in node.kwargs.items()}
        return emit(node, target, *args, **kwargs)


# --- operators that treat the two parts differently -------------------------------------------------------------------


def _complex(forms: Forms, node: fx.Node) -> Parts:
    del forms
    real, imaginary = broadcast(node.args, value_of(node), node)
    return real, imaginary


def _view_as_complex(forms: Forms, node: fx.Node) -> Parts:
    return forms.slices_of(_source(node), node)


def _view_as_real(forms: Forms, node: fx.Node) -> fx.Node:
    source = _source(node)
    parts, joined = forms.parts(source, node), forms.joined(source, node)
    if joined is source:  # an argument means the complex value in the model
        joined = emit(node, aten.clone.default, joined)
        forms.set_slices(joined, parts)
    return joined


def _real(forms: Forms, node: fx.Node) -> fx.Node:
    return forms.parts(_source(node), node)[0]


def _imag(forms: Forms, node: fx.Node) -> fx.Node:
    return forms.parts(_source(node), node)[1]


def _convert(forms: Forms, node: fx.Node) -> fx.Node | Parts:
    source, dtype = _source(node), value_of(node).dtype
    parts = forms.parts(source, node) if forms.was_complex(source) else None
    if dtype in forms.real:
        real = forms.real[dtype]
        if parts is None:
            return with_dtype(source, real, node), zeros(source, real, node)
        return with_dtype(parts[0], real, node), with_dtype(parts[1], real, node)
    assert parts is not None
    return with_dtype(parts[0], dtype, node)


REWRITES: Mapping[Any, Callable[[Forms, fx.Node], fx.Node | Parts]] = {
    aten.complex.default: _complex,
    aten.view_as_complex.default: _view_as_complex,
    aten.view_as_real.default: _view_as_real,
    aten.real.default: _real,
    aten.imag.default: _imag,
    prims.real.default: _real,
    prims.imag.default: _imag,
    prims.convert_element_type.default: _convert,
}


def _source(node: fx.Node) -> fx.Node:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source


PARTWISE = (DATA_MOVEMENT - {aten.as_strided.default, aten.view.dtype}) | {
    *(aten.resolve_conj.default, aten.resolve_neg.default, aten.contiguous.default, aten.lift_fresh.default),
    *(aten.scalar_tensor.default, aten.ones.default, aten.zeros.default, aten.tril.default, aten.triu.default),
    *(aten.index_copy.default, aten.masked_scatter.default, aten.neg.default, operator.getitem),
}
"""Operators on complex tensors that apply to both parts. Excluded are those that depend on strides or on bits."""
SCALAR_ARGUMENT = {**FILLS, aten.scalar_tensor.default: 0}
"""Position of the scalar argument that becomes an element; each part takes its own part of it."""
IMAGINARY_OPERATOR: Mapping[Any, Any] = {
    aten.ones_like.default: aten.zeros_like.default,
    aten.ones.default: aten.zeros.default,
}
"""Operator for the imaginary part where it differs from the real part's."""
REAL_ARGUMENTS: Mapping[Any, tuple[int, ...]] = {
    aten.cat.default: (0,),
    aten.stack.default: (0,),
    aten.where.self: (1, 2),
    aten.masked_fill.Tensor: (2,),
}
"""Positions of arguments that may be real with a complex result; their imaginary part is zero."""
SHAPE_ONLY = frozenset(
    (
        *(aten.sym_size.int, aten.sym_numel.default, aten.zeros_like.default, aten.ones_like.default),
        *(aten.full_like.default, aten.empty_like.default),
    )
)
"""Operators that only read the shape or fill it, with a real result: the real part stands for the whole tensor."""

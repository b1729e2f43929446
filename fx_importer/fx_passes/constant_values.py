"""Values of the nodes of a program that depend on no input, computed by eager PyTorch."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.node import map_arg

from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten, prims
from fx_importer.fx_graph.programs import as_node_dtype, held_value, mutated_state, weight_names
from fx_importer.fx_passes.fx_pass import FxContext
from fx_importer.options import Weights

_MAX_CONSTANT_BYTES = 1 << 16
"""Largest folded constant that is larger than the floating-point tensors that it is computed from."""
_MAX_FLOAT64_BYTES = 1 << 24
"""Largest constant of operators on float64 where the output type lacks float64."""
_MAX_BYTES = 1 << 28
"""Largest value that is computed."""
_MAX_POSITIONS_BYTES = 1 << 12
"""Largest folded integers that are computed from no weight."""
DRAWN = frozenset((aten.rand.default, aten.randn.default, aten.randint.default, aten.randint.low))
"""Sources of random numbers, which become constants where the output type has no random numbers."""
_HELD_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_MOVES = frozenset((aten.permute.default, aten.t.default, aten.transpose.int, aten.expand.default))
"""Operators that return the elements of their operand in another order, or repeat them."""
_CONVERT = prims.convert_element_type.default
_PARTS = frozenset((aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int))
"""Operators that return several tensors, which are views of their operand."""
_VIEWS = (
    _MOVES
    | _PARTS
    | {
        operator.getitem,
        *(aten.view.default, aten.reshape.default, aten.alias.default, aten.detach.default, aten.unsqueeze.default),
        *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.slice.Tensor, aten.select.int),
    }
)
_SHAPES_AND_DTYPES = _VIEWS | {aten._to_copy.default, _CONVERT}


@dataclass(frozen=True)
class FoldingRules:
    """Operators that are folded for an output type, besides those on weights, buffers and constants."""

    without_operands: bool = False
    """Whether random numbers are drawn, and integers created from scalars, which C++ lowerings truncate to 32 bits."""
    lacks_float64: bool = False
    """Whether results of operators on float64 are folded up to 16 MiB."""
    position_operators: int | None = None
    """Most operators of integers that stay computed though no weight decides them: longer computations are folded up to
    4 KiB. None: no such integers are folded."""


class Constants:
    """The nodes of a program that depend on no input, and their values, which are computed when needed."""

    def __init__(self, program: ExportedProgram, state: Collection[str] = (), rules: FoldingRules | None = None):
        self._rules = rules or FoldingRules()
        self.held: dict[fx.Node, str] = {}
        """Placeholders of weights, buffers and constants that may be read, with their names."""
        self.parameters: set[fx.Node] = set()
        """Those of parameters."""
        self._values: dict[fx.Node, torch.Tensor] = {}
        nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        for spec in program.graph_signature.input_specs:
            if spec.kind in _HELD_KINDS and spec.target is not None and spec.target not in state:
                value, node = held_value(program, spec), nodes[spec.arg.name]
                if type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and _is_readable(value):
                    self.held[node] = spec.target
                    self._values[node] = as_node_dtype(node, value.detach())
                    if spec.kind is InputKind.PARAMETER:
                        self.parameters.add(node)
        self.nodes: dict[fx.Node, frozenset[fx.Node]] = {node: frozenset((node,)) for node in self.held}
        """Nodes that depend on no input, in order, with the placeholders that they are computed from."""
        self._from_floats = set[fx.Node]()
        """Those that are floats or computed from floats."""
        self._order: dict[fx.Node, int] = {}
        for node in program.graph.nodes:
            self.add(node)

    def add(self, node: fx.Node) -> None:
        """Add ``node`` to `nodes` if it depends on no input."""
        self._order[node] = len(self._order)
        if all(source in self.nodes for source in node.all_input_nodes) and self._is_computable(node):
            self.nodes[node] = frozenset().union(*(self.nodes[source] for source in node.all_input_nodes))
            value = value_of(node)
            if not self._from_floats.isdisjoint(node.all_input_nodes) or (
                isinstance(value, torch.Tensor) and value.is_floating_point()
            ):
                self._from_floats.add(node)

    def _is_computable(self, node: fx.Node) -> bool:
        if node.target is operator.getitem:
            return isinstance(value_of(node), torch.Tensor) and _is_readable(value_of(node))
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            return False
        if node.target.namespace not in ("aten", "prims") or node.target._schema.is_mutable:
            return False
        is_random = torch.Tag.nondeterministic_seeded in node.target.tags
        if (is_random or node.is_impure()) and not (self._rules.without_operands and node.target in DRAWN):
            return False
        value = value_of(node)
        if _has_symbols(node.args) or _has_symbols(node.kwargs):
            return False
        if node.target in _PARTS:
            return True
        return type(value) is not tuple and isinstance(value, torch.Tensor) and _is_readable(value)

    def value(self, node: fx.Node) -> torch.Tensor | None:
        """Return the value of a node in `nodes`; None if eager PyTorch computes another type than the graph has."""
        pending, needed = [node], set[fx.Node]()
        while pending:
            source = pending.pop()
            if source not in self._values and source not in needed:
                needed.add(source)
                pending += source.all_input_nodes
        with torch.no_grad():
            for source in sorted(needed, key=self._order.__getitem__):
                args, kwargs = map_arg((source.args, source.kwargs), self._values.__getitem__)
                function: Any = source.target
                try:
                    value = function(*args, **kwargs)
                except RuntimeError as error:
                    if "without overflow" in str(error):  # a number that a dtype lacks: infinity, as in eager's kernels
                        return None
                    raise
                if source.target not in _PARTS and not _has_type_of(value, source.meta["val"]):
                    return None
                self._values[source] = value
        return self._values[node]

    def roots(self) -> dict[fx.Node, torch.Tensor]:
        """Return the values of the nodes to replace by constants: folded nodes with users that are not folded."""
        folded = dict.fromkeys(self.nodes)
        while True:
            for node in reversed(list(folded)):
                if any(user not in folded for user in node.users) and not self.may_be_constant(node):
                    del folded[node]
            ends = [node for node in folded if any(user not in folded for user in node.users)]
            first: dict[int, fx.Node] = {}
            numbers = self._numbers()
            values = {
                node: self.value(first.setdefault(numbers[node], node)) for node in ends if self._is_worth_folding(node)
            }
            if not (failed := [node for node, value in values.items() if value is None]):
                return {node: value for node, value in values.items() if value is not None and value.numel()}
            for node in failed:
                del folded[node]

    def remove(self, node: fx.Node) -> None:
        """Remove a node that is erased."""
        self.nodes.pop(node, None)
        self._values.pop(node, None)

    def _numbers(self) -> dict[fx.Node, int]:
        """Return a number for each node; equal calls of equal operands have one."""
        numbers: dict[fx.Node, int] = {}
        known: dict[object, int] = {}
        for node in self.nodes:
            key: object = node
            if node not in self.held and node.target not in DRAWN:
                key = node.target, repr(map_arg((node.args, node.kwargs), lambda source: f"%{numbers[source]}"))
            numbers[node] = known.setdefault(key, len(known))
        return numbers

    def may_be_constant(self, node: fx.Node) -> bool:
        """Return whether the value of ``node``, a node in `nodes`, is not too large to be stored."""
        value = value_of(node)
        if node in self.held or node.target in DRAWN:
            return True
        if node.target in _PARTS:  # its tensors may be
            return False
        if node.target in _MOVES and self._reads_weights(node):
            return False
        if _bytes(value) <= _MAX_CONSTANT_BYTES:
            return True
        if self._rules.lacks_float64 and _has_float64(node):
            return _bytes(value) <= _MAX_FLOAT64_BYTES
        sources = [self._values[source] for source in self.nodes[node]]
        replaced = sum(_bytes(source) for source in sources if source.is_floating_point())
        return value.is_floating_point() and _bytes(value) <= replaced and not self._is_view(node)

    def first_held(self, node: fx.Node) -> str | None:
        """Return the name of the first weight, buffer or constant that ``node`` is computed from."""
        while node not in self.held:
            if not (sources := [source for source in node.all_input_nodes if self.nodes[source]]):
                return None
            node = sources[0]
        return self.held[node]

    def _is_worth_folding(self, node: fx.Node) -> bool:
        if node in self.held:
            return False
        if not node.all_input_nodes:
            return self._rules.without_operands and (node.target in DRAWN or not value_of(node).is_floating_point())
        # Positions, and many integers without weights, are cheaper to compute than to read. Integers that are computed
        # from floats have the values that eager PyTorch rounds, as what else is folded has.
        value = value_of(node)
        is_integer = not value.is_floating_point() and value.dtype != torch.bool
        is_integer = is_integer and (node not in self._from_floats or _is_position(node))
        if self._rules.without_operands or not is_integer or self.nodes[node]:
            return True
        limit = self._rules.position_operators
        return limit is not None and _bytes(value) <= _MAX_POSITIONS_BYTES and len(_operators_of(node)) > limit

    def _reads_weights(self, node: fx.Node) -> bool:
        return not self._rules.without_operands or bool(self.nodes[node] & self.parameters)

    def _is_view(self, node: fx.Node) -> bool:
        """Return whether ``node`` only selects and arranges elements of one weight."""
        while node not in self.held and node.target in _VIEWS:
            node = node.all_input_nodes[0]
        return node in self.held


def _bytes(value: torch.Tensor) -> int:
    return value.numel() * value.itemsize


def _has_float64(node: fx.Node) -> bool:
    return any(value_of(source).dtype == torch.float64 for source in (node, *node.all_input_nodes))


def _is_readable(value: torch.Tensor) -> bool:
    """Return whether ``value``, a tensor or an example value, is a dense CPU tensor of static, bounded size."""
    if not all(isinstance(size, int) for size in value.shape):
        return False  # before a symbolic size is compared, which would add a guard
    strided = value.layout is torch.strided and not value.is_quantized
    return strided and value.device.type == "cpu" and math.prod(value.shape) * value.itemsize <= _MAX_BYTES


def _has_type_of(value: Any, example: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == example.dtype and value.shape == example.shape


def _is_position(node: fx.Node) -> bool:
    """Return whether ``node`` is an ``arange`` in another shape or dtype, which compilers fuse into its readers."""
    return not _operators_of(node)


def _operators_of(node: fx.Node) -> set[fx.Node]:
    """Return the calls that compute ``node``, without those that create tensors, or only change a shape or dtype."""
    pending, found, operators = [node], set[fx.Node](), set[fx.Node]()
    while pending:
        if (source := pending.pop()) not in found:
            found.add(source)
            pending += (operands := source.all_input_nodes)
            if len(operands) > 1 or (operands and source.target not in _SHAPES_AND_DTYPES):
                operators.add(source)
    return operators


def _has_symbols(argument: Any) -> bool:
    """Return whether ``argument``, of a node, is or has a symbolic number."""
    if isinstance(argument, list | tuple):
        return any(map(_has_symbols, argument))
    if isinstance(argument, dict):
        return any(map(_has_symbols, argument.values()))
    return isinstance(argument, torch.SymInt | torch.SymFloat | torch.SymBool)


def foldable_state(program: ExportedProgram, context: FxContext) -> set[str]:
    """Return the names of tensors that no pass may read: what a program writes, and weights outside the module."""
    options = context.options.importing
    state = set[str]().union(*map(mutated_state, context.programs.values()))
    if options.weights is not Weights.INLINE or options.mesh is not None:
        state |= weight_names(program)
    if not context.options.lowering.fold or program.graph_signature.backward_signature is not None:
        state.update(program.graph_signature.parameters)
    return state


def rules_of(context: FxContext) -> FoldingRules:
    """Return what is folded in a compilation."""
    return FoldingRules(
        without_operands=not context.target.random,
        lacks_float64=torch.float64 in context.dtypes.inside,
        position_operators=context.target.position_operators,
    )


def folds(context: FxContext) -> bool:
    """Return whether a compilation folds weights."""
    return context.target.folds_constants and context.options.lowering.fold

"""Constant folding: operators that depend on no input are computed by eager PyTorch."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.diagnostics.remarks import WeightsRead
from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import (
    as_node_dtype,
    held_value,
    mutated_state,
    weight_names,
    with_graph,
    with_rewritten_graphs,
)
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.options import Weights

_MAX_CONSTANT_BYTES = 1 << 16
"""Largest folded constant that is larger than the floating-point tensors that it is computed from."""
_MAX_FLOAT64_BYTES = 1 << 24
"""Largest constant of operators on float64 where the output type lacks float64."""
_MAX_BYTES = 1 << 28
"""Largest value that is computed."""
DRAWN = frozenset((aten.rand.default, aten.randn.default, aten.randint.default, aten.randint.low))
"""Sources of random numbers, which become constants where the output type has no random numbers."""
_HELD_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_MOVES = frozenset((aten.permute.default, aten.t.default, aten.transpose.int, aten.expand.default))
"""Operators that return the elements of their operand in another order, or repeat them."""
_VIEWS = _MOVES | {
    *(aten.view.default, aten.reshape.default, aten.alias.default, aten.detach.default, aten.unsqueeze.default),
    *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.slice.Tensor, aten.select.int),
}


@dataclass(frozen=True)
class FoldingRules:
    """Operators that are folded for an output type, besides those on weights, buffers and constants."""

    without_operands: bool = False
    """Whether random numbers are drawn, and integers created from scalars, which C++ lowerings truncate to 32 bits."""
    lacks_float64: bool = False
    """Whether results of operators on float64 are folded up to 16 MiB."""


class Constants:
    """The nodes of a program that depend on no input, and their values, which are computed when needed."""

    def __init__(self, program: ExportedProgram, state: Collection[str] = (), rules: FoldingRules = FoldingRules()):
        self._rules = rules
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
        self._order: dict[fx.Node, int] = {}
        for node in program.graph.nodes:
            self.add(node)

    def add(self, node: fx.Node) -> None:
        """Add ``node`` to `nodes` if it depends on no input."""
        self._order[node] = len(self._order)
        if all(source in self.nodes for source in node.all_input_nodes) and self._is_computable(node):
            self.nodes[node] = frozenset().union(*(self.nodes[source] for source in node.all_input_nodes))

    def _is_computable(self, node: fx.Node) -> bool:
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            return False
        if node.target.namespace not in ("aten", "prims") or node.target._schema.is_mutable:
            return False
        is_random = torch.Tag.nondeterministic_seeded in node.target.tags
        if (is_random or node.is_impure()) and not (self._rules.without_operands and node.target in DRAWN):
            return False
        value = value_of(node)
        symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)
        if any(isinstance(leaf, symbols) for leaf in tree_leaves((node.args, node.kwargs))):
            return False
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
                operator: Any = source.target
                value = operator(*args, **kwargs)
                if not _has_type_of(value, source.meta["val"]):
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
        # Integers without weights, such as positions, are cheaper to compute than to read.
        is_integer = not value_of(node).is_floating_point() and value_of(node).dtype != torch.bool
        return self._rules.without_operands or not is_integer or bool(self.nodes[node])

    def _reads_weights(self, node: fx.Node) -> bool:
        return not self._rules.without_operands or bool(self.nodes[node] & self.parameters)

    def _is_view(self, node: fx.Node) -> bool:
        """Return whether ``node`` only selects and arranges elements of one weight."""
        while node not in self.held and node.target in _VIEWS:
            node = node.all_input_nodes[0]
        return node in self.held


def fold_constants(
    program: ExportedProgram, state: Collection[str] = (), rules: FoldingRules = FoldingRules()
) -> tuple[ExportedProgram, Collection[str]]:
    """Return ``program`` with operators that depend on no input replaced by constants, and the weights read for that.

    Tensors named in ``state`` count as inputs. Weights that only change their shape or the order of their axes stay:
    their consumers read the memory of the model. So do results that are larger than 64 KiB and than their weights.
    """
    constants = Constants(program, state, rules)
    found = constants.roots()
    if not found:
        return program, ()
    program = with_rewritten_graphs(program, lambda graph, owner: None)
    copied = {node.name: node for node in program.graph.nodes}
    specs = list(program.graph_signature.input_specs)
    first = next((i for i, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT), len(specs))
    # In a program without inputs, the constants come after the other placeholders.
    placeholders = program.graph.find_nodes(op="placeholder")
    before = placeholders[first] if first < len(placeholders) else (placeholders or [program.graph._root])[-1].next
    held = dict(program.constants)
    read = set[str]()
    names = [f"{constants.first_held(node) or node.name}_folded" for node in found]
    placed: dict[int, fx.Node] = {}
    for (node, value), name in zip(found.items(), names, strict=True):
        folded = copied[node.name]
        if id(value) in placed:
            folded.replace_all_uses_with(placed[id(value)])
            continue
        number = len(placed)
        read |= {constants.held[source] for source in constants.nodes[node]}
        target = name
        for copy in itertools.count(1):
            if target not in held and target not in program.state_dict:
                break
            target = f"{name}_{copy}"
        held[target] = value
        with program.graph.inserting_before(before):
            constant = program.graph.placeholder(re.sub(r"\W", "_", target))
        constant.meta |= {key: node.meta[key] for key in ("val", "model_val") if key in node.meta}
        specs.insert(first + number, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(constant.name), target))
        folded.replace_all_uses_with(constant)
        placed[id(value)] = constant
    program.graph.eliminate_dead_code()
    signature = ExportGraphSignature(specs, program.graph_signature.output_specs)
    return with_graph(program, program.graph, signature, root=program.graph_module, constants=held), read


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


def random_nodes(program: ExportedProgram) -> list[fx.Node]:
    """Return the calls in ``program`` whose random numbers constant folding samples."""
    return [node for node in program.graph.nodes if node.target in DRAWN]


def random_functions(programs: Iterable[ExportedProgram]) -> tuple[str, ...]:
    """Return the functions of torch whose random numbers constant folding samples, with their source lines."""
    functions: dict[str, None] = {}
    for node in (node for program in programs for node in random_nodes(program)):
        called = node.meta.get("torch_fn")  # such as ("dropout_1", "function.dropout")
        function = called[1].partition(".")[2] if called else str(node.target)
        line = unsupported_node(node, "").where
        functions[function + (f" (at {line})" if line else "")] = None
    return tuple(functions)


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
        without_operands=not context.target.random, lacks_float64=torch.float64 in context.dtypes.inside
    )


def _fold(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    if not context.target.random and (nodes := random_nodes(program)):
        line = unsupported_node(nodes[0], "").where
        context.remark(
            f"random numbers are drawn here, and are the same in each call: {len(nodes)} tensors"
            + (f", the first at {line}" if line else "")
        )
    folded, read = fold_constants(program, foldable_state(program, context), rules_of(context))
    if read:
        context.remark(WeightsRead(read))
    return folded


def folds(context: FxContext) -> bool:
    """Return whether a compilation folds weights."""
    return context.target.folds_constants and context.options.lowering.fold


FOLD_CONSTANTS = FxPass("fold-constants", _fold, lambda context: folds(context) or not context.target.random)

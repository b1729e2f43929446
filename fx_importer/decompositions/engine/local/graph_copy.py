"""Copy of a graph with decomposed nodes replaced by the graphs of their rules."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from fx_importer.decompositions.engine.kept.kept_rule import WrongWhenKept
from fx_importer.decompositions.engine.local.example_values import (
    SizeNodes,
    example_values,
    has_type_of,
    keep_exported_types,
    type_key,
)
from fx_importer.decompositions.engine.local.mutations import VIEW_SCATTERS, Mutations
from fx_importer.decompositions.engine.local.operator_properties import (
    functional_form,
    has_ordered_effect,
    is_decomposed,
)
from fx_importer.decompositions.engine.local.recorded_replacements import RecordedReplacements
from fx_importer.decompositions.engine.local.rule_tracing import (
    Replacement,
    RetraceRequired,
    Rules,
    SymbolicNumber,
    SymNumber,
    trace_rule,
)
from fx_importer.diagnostics.progress import counted
from fx_importer.fx_graph.aliasing import mutated_arguments, updates_running_statistics
from fx_importer.fx_graph.emission import has_symbolic_sizes
from fx_importer.fx_graph.operators import aten

_CONSTANTS = (bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format, slice, type(None))
_META_NOT_COPIED = frozenset(("val", "unbacked_bindings", "tensor_meta", "eager_input_vals"))


@dataclass(frozen=True)
class SyntheticCall:
    """A call that has no node in the old graph."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    meta: Mapping[str, Any]


class ReplacementCache:
    """Replacements by operator and kind of arguments."""

    def __init__(self, rules: Rules, mode: FakeTensorMode, recorded: RecordedReplacements | None = None):
        self.rules = rules
        self._mode = mode
        self._recorded = recorded
        """Replacements that earlier programs recorded by the same rules; None if the rules may change."""
        self._known: dict[Any, Replacement] = {}
        self._types: dict[int, tuple[Tensor, Any]] = {}
        """The `type_key` of example values, by their id, which stays unique while they are held here."""

    def of(self, target: OpOverload, node: fx.Node | SyntheticCall) -> tuple[Replacement, list[fx.Node]]:
        """Return the replacement of ``target`` for the arguments of ``node``, and the nodes of its inputs.

        Raises:
            RetraceRequired: if its rule has to be traced with the rest of the program.
        """
        inputs: list[fx.Node] = []
        key = target, self._key(node.args, inputs), self._key(node.kwargs, inputs)
        piece = self._known.get(key)
        if piece is None:
            if (piece := self._recorded.find(key, self._mode) if self._recorded else None) is None:
                piece = self._record(target, node, inputs, key)
            if not has_type_of(piece.result, node.meta.get("val")):
                raise RetraceRequired("its rule computes a result of another type")
            self._known[key] = piece
        return piece, inputs

    def _record(
        self, target: OpOverload, node: fx.Node | SyntheticCall, inputs: list[fx.Node], key: Any
    ) -> Replacement:
        values: dict[fx.Node, Tensor] = {}
        for operand in inputs:
            value = operand.meta["val"]
            if any(value is other for other in values.values()):  # the tracer identifies inputs by identity
                with self._mode:
                    value = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            values[operand] = value
        args, kwargs = (example_values(arguments, values) for arguments in (node.args, node.kwargs))
        piece = trace_rule(target, args, kwargs, list(values.values()), self.rules, self._mode)
        if any(mutated_arguments(step) for step in piece.steps):
            piece = self._functional(piece)
        if self._recorded is not None and not has_symbolic_sizes((args, kwargs)):
            piece = self._recorded.add(key, target, piece)
        return piece

    def _key(self, argument: Any, inputs: list[fx.Node]) -> Any:
        """Return all that a rule can depend on in ``argument``; append nodes of tensors to ``inputs``, each once."""
        if isinstance(argument, fx.Node):
            value = argument.meta.get("val")
            if not isinstance(value, Tensor):
                if isinstance(value, tuple | list):
                    raise RetraceRequired("it takes all results of an operator at once")
                return self._key(value, inputs)
            if argument not in inputs:
                inputs.append(argument)
            if (known := self._types.get(id(value))) is None:
                known = self._types[id(value)] = value, type_key(value)
            return inputs.index(argument), known[1]
        if isinstance(argument, tuple | list):
            return type(argument), *(self._key(item, inputs) for item in argument)
        if isinstance(argument, dict):
            return tuple((key, self._key(item, inputs)) for key, item in argument.items())
        if isinstance(argument, SymbolicNumber):
            return self._key(argument.number, inputs)
        if isinstance(argument, SymNumber):
            return type(argument), argument.node.expr
        if isinstance(argument, float | complex):
            return repr(argument)  # distinguishes 0.0 from -0.0
        if isinstance(argument, _CONSTANTS):
            return type(argument), argument
        raise RetraceRequired(f"it takes a value of type {type(argument).__name__}")

    def _functional(self, piece: Replacement) -> Replacement:
        """Return ``piece`` without mutations."""
        graph = fx.Graph()
        walk = GraphCopy(graph, self, None)
        constants: dict[fx.Node, Tensor] = {}
        for formal in (*piece.inputs, *piece.constants):
            walk.values[formal] = graph.node_copy(formal)
        walk.run(piece.steps, piece.inputs[0].graph if piece.inputs else piece.steps[0].graph, piece.result)
        for formal, tensor in piece.constants.items():
            constants[walk.values[formal]] = tensor
        for tensor, placeholder in walk.constants.values():
            constants[placeholder] = tensor
        steps = tuple(node for node in graph.nodes if node.op != "placeholder")
        inputs = tuple(walk.values[formal] for formal in piece.inputs)
        return Replacement(inputs, constants, steps, walk.result(piece.result))


class GraphCopy:
    """A forward pass over the nodes of a graph that writes a new graph."""

    def __init__(self, graph: fx.Graph, pieces: ReplacementCache, sizes: SizeNodes | None):
        self.graph = graph
        self.values: dict[fx.Node, Any] = {}
        """The value of each old node in the new graph: a node, a constant, or a sequence of these."""
        self.constants: dict[int, tuple[Tensor, fx.Node]] = {}
        """The tensors that rules create from Python numbers, by id, and their placeholders."""
        self.first_input: fx.Node | None = None
        """The first placeholder of a user input."""
        self.writable: frozenset[fx.Node] = frozenset()
        """The placeholders that nodes may mutate: `values` has their final values afterwards."""
        self._pieces = pieces
        self._sizes = sizes
        """None: symbolic sizes stay `SymbolicNumber`."""

    def run(self, nodes: Iterable[fx.Node], old: fx.Graph, result: Any = None) -> None:
        """Copy ``nodes`` of the graph ``old``; ``result`` is read after them, if they are not all of it."""
        nodes = list(nodes)
        writes = (
            Mutations(nodes, old, result, self.writable) if any(mutated_arguments(call) for call in nodes) else None
        )
        for node in counted(nodes, "nodes"):
            try:
                self._write(node, writes)
            except WrongWhenKept as wrong:
                wrong.node = wrong.node or node
                raise
            except RetraceRequired as reason:
                raise RetraceRequired(f"{node.name} ({node.target}): {reason}") from reason

    def _write(self, node: fx.Node, writes: Mutations | None) -> None:
        target: Any = node.target
        if target is triton_kernel_wrapper_functional:
            self._keep(node)
        elif isinstance(target, HigherOrderOperator):
            raise RetraceRequired("an operator of higher order has graphs of its own")
        elif not isinstance(target, OpOverload):
            source = self.values.get(node.args[0]) if target is operator.getitem else None  # type: ignore[call-overload]
            if isinstance(source, tuple | list):
                self.values[node] = source[node.args[1]]  # type: ignore[index]
            else:
                self._keep(node)
        elif updates_running_statistics(target, node.args):
            raise RetraceRequired("it updates running statistics")
        elif has_ordered_effect(target):
            raise RetraceRequired("its effect is kept in order")
        elif target is aten.detach_.default:
            self.values[node] = self.values[node.args[0]]  # type: ignore[index]
        elif mutated_arguments(node):
            assert writes is not None
            form = functional_form(target)
            if form is None:
                raise RetraceRequired("it writes to memory, and has no form that returns the result instead")
            names, *wholes = writes.of(node)
            result = self._put(*self._pieces.of(form, node), node)
            self.values.update(dict.fromkeys(names, result))
            for whole in wholes:
                self._put_part(names[0], whole, node)
                names = whole
        elif not is_decomposed(target, self._pieces.rules):
            self._keep(node)
        else:
            piece, inputs = self._pieces.of(target, node)
            if piece.is_whole:
                self._keep(node)
            else:
                self.values[node] = self._put(piece, inputs, node)

    def _keep(self, node: fx.Node) -> None:
        kept = self.values[node] = self.graph.node_copy(node, self.values.__getitem__)
        if node.op == "placeholder":
            kept.name = node.name  # `node_copy` renames a placeholder called `input`
        if self._sizes is not None:
            self._sizes.remember(kept)

    def _put(self, piece: Replacement, inputs: Sequence[fx.Node], node: fx.Node | SyntheticCall) -> Any:
        """Write ``piece`` in place of ``node``, and return its result."""
        values: dict[fx.Node, Any] = {
            placeholder: self.values[input_] for placeholder, input_ in zip(piece.inputs, inputs, strict=True)
        }
        for placeholder, tensor in piece.constants.items():
            values[placeholder] = self._constant(tensor, placeholder)
        kept = {key: value for key, value in node.meta.items() if key not in _META_NOT_COPIED}
        for step in piece.steps:
            args, kwargs = self._of(step.args, values), self._of(step.kwargs, values)
            new = values[step] = self.graph.create_node("call_function", step.target, args, kwargs, step.name)
            new.meta = {**kept, "val": piece.value_of(step)}
            if self._sizes is not None:
                self._sizes.remember(new)
        keep_exported_types(piece.result, node.meta.get("val"), values, frozenset(piece.steps))
        return self._of(piece.result, values)

    def _put_part(self, part: fx.Node, whole: Sequence[fx.Node], writer: fx.Node) -> None:
        """Update ``whole``, the aliases of one tensor, after its view ``part`` was mutated."""
        args = part.args[0], part, *part.args[1:]
        call = SyntheticCall(args, part.kwargs, {**writer.meta, "val": whole[0].meta["val"]})
        result = self._put(*self._pieces.of(VIEW_SCATTERS[part.target], call), call)
        self.values.update(dict.fromkeys(whole, result))

    def _of(self, argument: Any, values: Mapping[fx.Node, Any]) -> Any:
        """Return an argument of a replacement in terms of the new graph."""
        if isinstance(argument, fx.Node):
            return values[argument]
        if isinstance(argument, tuple | list):
            items = [self._of(item, values) for item in argument]
            return tuple(items) if isinstance(argument, tuple) else items
        if isinstance(argument, dict):
            return {key: self._of(item, values) for key, item in argument.items()}
        if isinstance(argument, SymbolicNumber) and self._sizes is not None:
            return self._sizes.node_of(argument.number)
        return argument

    def result(self, argument: Any) -> Any:
        """Return a result of the old graph in terms of the new graph."""
        return self._of(argument, self.values)

    def _constant(self, tensor: Tensor, placeholder: fx.Node) -> fx.Node:
        if id(tensor) not in self.constants:
            first = self.first_input or next((call for call in self.graph.nodes if call.op != "placeholder"), None)
            with self.graph.inserting_before(first) if first is not None else nullcontext():
                node = self.graph.placeholder("lifted_tensor")
            node.meta["val"] = placeholder.meta["val"]
            self.constants[id(tensor)] = tensor, node
        return self.constants[id(tensor)][1]

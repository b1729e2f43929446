"""Constants of an exported program: values of nodes that do not depend on inputs, and new constants."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx.node import map_arg

from fx_importer.fx_graph.programs import fake_mode_of, held_value, with_graph
from fx_importer.mlir.tensor_elements import as_array

_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class GraphConstants:
    """Values of the nodes of ``graph``, a copy of the graph of ``program``, and the constants added to it."""

    def __init__(self, program: ExportedProgram, graph: fx.Graph):
        self._program, self._graph = program, graph
        self._mode = fake_mode_of(graph)
        mutated = {
            *program.graph_signature.buffers_to_mutate.values(),
            *program.graph_signature.parameters_to_mutate.values(),
        }
        self._specs: Mapping[str, InputSpec] = {
            spec.arg.name: spec
            for spec in program.graph_signature.input_specs
            if spec.kind in _HELD and spec.target not in mutated
        }
        self._values: dict[fx.Node, Tensor | None] = {}
        self._added: dict[str, Tensor] = {}
        self._placeholders: dict[str, str] = {}
        self._shared: dict[tuple[torch.dtype, torch.Size, bytes], fx.Node] = {}

    def value(self, node: object) -> Tensor | None:
        """Return the value of a node that does not depend on inputs; None for others and for weights without values."""
        if not isinstance(node, fx.Node):
            return None
        if node not in self._values:
            self._values[node] = self._computed(node)
        return self._values[node]

    def _computed(self, node: fx.Node) -> Tensor | None:
        if node.op == "placeholder" and (spec := self._specs.get(node.name)):
            tensor = held_value(self._program, spec)
            known = isinstance(tensor, Tensor) and not isinstance(tensor, FakeTensor) and not tensor.is_meta
            return tensor.detach() if known else None
        target = node.target
        if node.op != "call_function" or not isinstance(target, OpOverload):
            return None
        example = node.meta.get("val")
        if not isinstance(example, Tensor) or not all(isinstance(size, int) for size in example.shape):
            return None
        if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
            return None
        values = {operand: self.value(operand) for operand in node.all_input_nodes}
        if any(value is None for value in values.values()):
            return None
        args, kwargs = map_arg((node.args, node.kwargs), lambda source: values[source])
        with torch.no_grad():
            result = target(*args, **kwargs)
        return result if isinstance(result, Tensor) else None

    def add(self, tensor: Tensor) -> fx.Node:
        """Return a placeholder of ``tensor``: an existing one with equal elements, or a new one."""
        tensor = tensor.contiguous()
        key = _content(tensor)
        if key not in self._shared:
            self._shared[key] = self._add(tensor)
        return self._shared[key]

    def shared(self, node: fx.Node, tensor: Tensor) -> fx.Node:
        """Return the first placeholder of ``tensor``, which ``node`` is one of."""
        return self._shared.setdefault(_content(tensor.contiguous()), node)

    def _add(self, tensor: Tensor) -> fx.Node:
        target = f"integer_{len(self._added)}"
        self._added[target] = tensor
        with self._graph.inserting_before(next(iter(self._graph.nodes))):
            node = self._graph.placeholder(target)
        node.meta["val"] = self._mode.from_tensor(tensor, static_shapes=True) if self._mode else tensor
        self._placeholders[target] = node.name
        self._values[node] = tensor
        return node

    def program(self) -> ExportedProgram:
        """Return the program with the graph, and with the added constants that it uses."""
        placeholders: dict[str, fx.Node] = {node.name: node for node in self._graph.find_nodes(op="placeholder")}
        specs: list[InputSpec] = []
        constants: dict[str, Any] = dict(self._program.constants)
        for target, name in reversed(self._placeholders.items()):  # each was inserted before all others
            if not placeholders[name].users:
                self._graph.erase_node(placeholders[name])
                continue
            specs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), target))
            constants[target] = self._added[target]
        signature = self._program.graph_signature
        changed = type(signature)([*specs, *signature.input_specs], signature.output_specs)
        return with_graph(self._program, self._graph, changed, constants=constants)


def _content(tensor: Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    return tensor.dtype, tensor.shape, hashlib.sha256(as_array(tensor).tobytes()).digest()

"""A graph of TorchDynamo as a module with its weights and the user's names, which torch.export takes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymInt, Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from fx_importer.frontend.torch_patches import tracing


@dataclass(frozen=True)
class HeldInput:
    """An input of a graph that is a weight or state of the module."""

    name: str


@dataclass(frozen=True)
class PassedInput:
    """An input of a graph that is an argument of the function."""

    position: int


@dataclass(frozen=True)
class SizeInput:
    """An input of a graph that is the size of another one, along an axis."""

    input: int
    axis: int


@dataclass(frozen=True)
class ViewInput:
    """An input of a graph that is a view of another one, which is contiguous."""

    input: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, base: Tensor) -> Tensor:
        """Return the view of ``base``."""
        count = torch.Size(self.sizes).numel()
        if self.strides == torch.empty(self.sizes, device="meta").stride():
            return base.view(-1)[self.offset : self.offset + count].view(self.sizes)
        return base.as_strided(self.sizes, self.strides, base.storage_offset() + self.offset)


GraphInput = HeldInput | PassedInput | SizeInput | ViewInput


class NamedGraph(nn.Module):
    """A graph whose inputs are parameters, buffers and arguments; its class has the name of the user's function."""

    @classmethod
    def of(
        cls,
        name: str,
        graph: fx.GraphModule,
        code: str,
        inputs: Sequence[GraphInput],
        parameters: Sequence[str],
        tensors: Mapping[str, Tensor],
        written: Sequence[int] = (),
    ) -> NamedGraph:
        """Return a module for ``graph``.

        Args:
            name: the name in messages.
            graph: the graph, all of whose tensors are inputs.
            code: the code of the graph as TorchDynamo captured it, which identifies it.
            inputs: the origin of each input of the graph.
            parameters: the names of the arguments, which need not be distinct.
            held: the weights and state, by dotted name.
            written: the positions of inputs that the graph writes to, which the module copies; it returns their new
                values after the outputs.
        """
        module = type(name, (cls,), {})()
        module.__dict__["graph"] = graph  # not a submodule: the graph has all its tensors as inputs
        module.code = code
        module.inputs, module.written = tuple(inputs), tuple(written)
        for path, tensor in tensors.items():
            module.hold(path, tensor)
        module.sign(parameters)
        return module

    inputs: tuple[GraphInput, ...]
    written: tuple[int, ...]
    code: str

    def hold(self, name: str, tensor: Tensor) -> None:
        """Register a parameter or a buffer under a dotted name."""
        *path, last = name.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner.get_submodule(part)
        if isinstance(tensor, nn.Parameter):
            owner.register_parameter(last, tensor)
        else:
            owner.register_buffer(last, tensor)

    def sign(self, parameters: Sequence[str]) -> None:
        """Define `forward` with the arguments as parameters, named as in the user's code."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [f"{name}_{i}" if name in parameters[:i] else name for i, name in enumerate(parameters)]

        def forward(*arguments: Any) -> Any:
            values = self.values_of(arguments)
            with preserve_node_meta():  # keep source locations
                results = fx.Interpreter(self.__dict__["graph"]).run(*values)
            return (*results, *(values[position] for position in self.written)) if self.written else results

        forward.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        self.forward = forward

    def values_of(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the inputs of the graph."""
        values: list[Any] = [None] * len(self.inputs)
        for position, origin in enumerate(self.inputs):
            if isinstance(origin, HeldInput):
                owner, _, last = origin.name.rpartition(".")
                values[position] = getattr(self.get_submodule(owner), last)
            elif isinstance(origin, PassedInput):
                value = arguments[origin.position]
                values[position] = value.clone() if position in self.written else value
        for position, origin in enumerate(self.inputs):
            if isinstance(origin, SizeInput):
                values[position] = values[origin.input].shape[origin.axis]
            elif isinstance(origin, ViewInput):
                values[position] = origin.of(values[origin.input])
        return values


def without_transforms(graph: fx.GraphModule, values: Sequence[Any]) -> fx.GraphModule:
    """Return ``graph`` with the transforms of `torch.func` applied, whose levels torch.export cannot retrace."""
    if not any(map(_is_of_transform, graph.graph.nodes)):
        return graph

    def run(*inputs: Any) -> Any:
        return fx.Interpreter(graph).run(*inputs)

    symbolic = any(isinstance(node.meta.get("example_value"), SymInt) for node in graph.graph.nodes)
    with tracing(), preserve_node_meta(), torch.enable_grad():
        return make_fx(run, tracing_mode="symbolic" if symbolic else "fake", _allow_non_fake_inputs=True)(*values)


def _is_of_transform(node: fx.Node) -> bool:
    module = getattr(node.target, "__module__", None) or ""
    return node.op == "call_function" and module.startswith(("torch._functorch", "torch._C._functorch"))

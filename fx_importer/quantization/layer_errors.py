"""Errors of a quantized program by layer: compared with the float model, and of integers compared with Q/DQ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from fx_importer.fx_graph.aliasing import mutated_arguments
from fx_importer.fx_graph.programs import held_value
from fx_importer.quantization.folding import folded
from fx_importer.quantization.functional_form import functional
from fx_importer.quantization.post_training.plan import module_of
from fx_importer.quantization.qdq import kind_of

Values = Mapping[str, Tensor]
"""Values of a graph, by the names of their nodes."""


@dataclass
class Powers:
    """Sums of squares of a signal and of an error."""

    signal: float = 0.0
    error: float = 0.0

    def add(self, expected: Tensor, actual: Tensor) -> None:
        """Add a value and its reference."""
        self.signal += float(expected.double().square().sum())
        self.error += float((actual.double() - expected.double()).square().sum())

    @property
    def ratio(self) -> float:
        """The ratio of both in dB; infinite without an error."""
        return math.inf if self.error == 0 else 10 * math.log10(max(self.signal, 1e-300) / self.error)


@dataclass
class LayerErrors:
    """Errors of one quantized value."""

    operator: str
    module: str
    """The path of the module that computes it; empty at the root."""
    alone: Powers = field(default_factory=Powers)
    """Of the layer alone, on operands of the float model, quantized."""
    whole: Powers = field(default_factory=Powers)
    """Of the program up to the layer."""


@contextmanager
def unchanged(module: fx.GraphModule, args: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield inputs for ``module``; afterwards the buffers that it writes have the values from before.

    ``args`` are copied if it writes any memory.
    """
    written = [argument for node in module.graph.nodes for argument in mutated_arguments(node)]
    names = {str(node.target) for node in written if node.op == "get_attr"}
    buffers = [buffer for name, buffer in module.named_buffers() if name in names]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield [argument.clone() if written and isinstance(argument, Tensor) else argument for argument in args]
    finally:
        for buffer, old in zip(buffers, before, strict=True):
            buffer.copy_(old)


def values_of(module: fx.GraphModule, args: Sequence[Any], names: Iterable[str]) -> dict[str, Tensor]:
    """Return the values of nodes of ``module`` with ``names``, for the flat inputs ``args``."""
    wanted, values = set(names), {}

    class LayerRecorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if n.name in wanted and isinstance(result, Tensor):
                values[n.name] = result
            return result

    with torch.no_grad(), unchanged(module, args) as copies:
        LayerRecorder(module).run(*copies, enable_io_processing=False)
    return values


def measure(quantized: fx.GraphModule, args: Sequence[Any], floats: Values, layers: dict[str, LayerErrors]) -> None:
    """Add the errors of quantized values to ``layers``; ``floats`` has the values of the float model."""
    for forced in (False, True):
        interpreter = _Measured(quantized, floats, layers, forced)
        with torch.no_grad(), unchanged(quantized, args) as copies:
            interpreter.run(*copies, enable_io_processing=False)


class _Measured(fx.Interpreter):
    """Runs a program; with ``forced``, quantize operators quantize the float model's values."""

    def __init__(self, module: fx.GraphModule, floats: Values, layers: dict[str, LayerErrors], forced: bool):
        super().__init__(module)
        self.floats, self.layers, self.forced = floats, layers, forced

    def run_node(self, n: fx.Node) -> Any:
        source = n.args[0] if n.args else None
        if kind_of(n) != "quantize" or not isinstance(source, fx.Node) or source.name not in self.floats:
            return super().run_node(n)
        (value, *rest), kwargs = self.fetch_args_kwargs_from_env(n)
        expected = self.floats[source.name]
        if expected.shape != value.shape:
            return super().run_node(n)
        layer = self.layers.setdefault(source.name, LayerErrors(str(source.target), module_of(source)))
        quantized = n.target(value, *rest, **kwargs)  # type: ignore[operator]
        scale, zero_point = rest[:2]
        if not isinstance(scale, Tensor) or scale.numel() == 1:
            (layer.alone if self.forced else layer.whole).add(expected, (quantized.float() - zero_point) * scale)
        return n.target(expected, *rest, **kwargs) if self.forced else quantized  # type: ignore[operator]


def steps_from_qdq(program: ExportedProgram, args: Sequence[Any]) -> dict[str, int]:
    """Return the largest difference of each integer operator from Q/DQ, by the name of the value, in steps.

    Errors do not accumulate: operands are taken from the quantized program in eager PyTorch, for the flat inputs
    ``args``.
    """
    program = functional(program)
    made = folded(program)
    graph = fx.GraphModule(program.graph_module, program.graph)
    names = set(made.replaced.values())
    expected = values_of(graph, [*_held(program), *args], names)
    steps: dict[str, int] = {}
    sources = {node.name: node.args[0].name for node in program.graph.nodes if node.name in names}

    class Forced(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            name = made.replaced.get(n.name)
            if name is None or n.op == "placeholder":
                return result
            difference = (result.int() - expected[name].int()).abs()
            if difference.numel():
                steps[sources[name]] = max(steps.get(sources[name], 0), int(difference.max()))
            return expected[name]

    with torch.no_grad():
        integers = fx.GraphModule(made.program.graph_module, made.program.graph)
        Forced(integers).run(*_held(made.program), *args, enable_io_processing=False)
    return steps


def _held(program: ExportedProgram) -> list[Any]:
    values = [held_value(program, spec) for spec in program.graph_signature.input_specs if spec.target is not None]
    return [value.detach() if isinstance(value, Tensor) else value for value in values]


def flat(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the leaves of the arguments of a call."""
    return tree_leaves((tuple(args), dict(kwargs)))

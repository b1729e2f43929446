"""Compilation of an AOTAutograd graph to a function: lowered, loaded, and called with the graph's flat inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._guards import tracing
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.utils._python_dispatch import _disable_current_modes

from fx_importer.api.lower import lower
from fx_importer.dynamo.aot_graphs import Computed, Drawn, Given, Graph, symbolic
from fx_importer.dynamo.backend_options import Settings
from fx_importer.dynamo.graph_fingerprint import fingerprint

Run = Callable[[Sequence[Any]], list[Any]]
"""Takes the inputs of a graph, and returns its outputs."""

COMPILED: dict[Hashable, tuple[Settings, Run]] = {}
"""The cache of compiled graphs of this process, by settings and fingerprint. The settings are kept alive because keys
may contain the ids of their objects."""


def compiled(module: fx.GraphModule, settings: Settings) -> Run:
    """Return a function that runs the graph of ``module``, which is not modified. Uses the cache if enabled.

    Raises:
        FxImporterError: as `lower` and the backend do.
    """
    # Torch is tracing: leave its modes, so that this code is not traced.
    with _disable_current_modes(), tracing(None):
        if not settings.cache:
            return _compiled(module, settings)
        key = (settings.key, fingerprint(module))
        if key not in COMPILED:
            COMPILED[key] = settings, _compiled(module, settings)
        return COMPILED[key][1]


def _compiled(module: fx.GraphModule, settings: Settings) -> Run:
    if not settings.dynamic_shapes and any(True for _ in symbolic(module.graph)):
        return _BySizes(module, settings)
    graph = Graph.of(module)
    if graph.program is None:
        return _Function(graph, _nothing)
    lowered = lower(graph.program, output_type=settings.output_type, **settings.lowering)
    return _Function(graph, lowered.caller(backend=settings.execution))


def _nothing() -> list[Any]:
    return []


@dataclass(frozen=True)
class _Function:
    graph: Graph
    caller: Callable[..., Sequence[Any]]
    """Takes the inputs of the program, and returns its outputs."""

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        graph = self.graph
        sizes = {
            symbol: inputs[position] if axis is None else inputs[position].shape[axis]
            for symbol, (position, axis) in graph.sizes.items()
        }
        drawn = [draw(sizes) for draw in graph.draws]
        taken = (drawn[each.position] if isinstance(each, Drawn) else inputs[each.position] for each in graph.takes)
        results = self.caller(*taken)
        outputs: list[Any] = []
        for origin in graph.gives:
            if isinstance(origin, Computed):
                outputs.append(_laid_out(results[origin.position], origin.order))
            else:
                outputs.append(inputs[origin.position] if isinstance(origin, Given) else origin.value)
        return outputs


def _laid_out(result: Any, order: Sequence[int] | None) -> Any:
    """Return ``result`` with its axes in memory in the given order."""
    if order is None:
        return result
    back = sorted(range(len(order)), key=order.__getitem__)
    return result.permute(order).contiguous().permute(back)


@dataclass(frozen=True)
class _BySizes:
    """A graph with symbolic sizes, compiled with static sizes on the first call with each set of them."""

    module: fx.GraphModule
    settings: Settings
    functions: dict[Hashable, Run] = field(default_factory=dict[Hashable, Run])

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        sizes = tuple(each.shape if isinstance(each, torch.Tensor) else each for each in inputs)
        if sizes not in self.functions:
            with preserve_node_meta():  # keep source locations
                static = make_fx(fx.Interpreter(self.module).run, tracing_mode="fake")(*inputs)
            self.functions[sizes] = compiled(static, self.settings)
        return self.functions[sizes](inputs)

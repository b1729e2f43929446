"""Compilation of an AOTAutograd graph to a function, which graphs of the same fingerprint share."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any

import sympy
import torch
from torch import SymInt, fx
from torch._guards import tracing
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from fx_importer.api.lower import lower
from fx_importer.dynamo.aot_graphs import ComputedOutput, Drawn, Given, Graph
from fx_importer.dynamo.aot_programs import symbolic
from fx_importer.dynamo.backend_options import GraphOptions
from fx_importer.dynamo.eager_parts import EAGER, Run, in_eager, in_parts, operators_of
from fx_importer.dynamo.fastest_engine import fastest, lower_quietly
from fx_importer.dynamo.gradient_kernels import with_gradient_kernels
from fx_importer.dynamo.graph_places import devices_of, launches_triton, place_of
from fx_importer.errors import EagerFallbackWarning, FxImporterError, UsageError

COMPILED: dict[Hashable, tuple[GraphOptions, Run]] = {}
"""The cache of compiled graphs of this process, by settings and fingerprint. The settings are kept alive because keys
may contain the ids of their objects."""

_REFUSED: dict[Hashable, tuple[GraphOptions, bool]] = {}
"""Whether graphs of a single operator cannot be lowered, by the same keys."""


_WARNED: set[tuple[str, str]] = set()
"""The engines and types of devices about which there was a warning."""


def forget() -> None:
    """Drop all compiled graphs."""
    COMPILED.clear()
    _WARNED.clear()
    _REFUSED.clear()


def compiled(module: fx.GraphModule, settings: GraphOptions) -> Run:
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


def _compiled(module: fx.GraphModule, settings: GraphOptions) -> Run:
    if isinstance(settings.engine, str):
        devices = devices_of(module.graph)
        if len(devices) > 1:
            return in_parts(module, place_of, lambda part: compiled(part, settings))
        for device in devices:
            try:
                settings = settings.on(device)
            except UsageError as error:
                return _on_device(module, device, settings, error)
    if not settings.calls_python and any(map(launches_triton, module.graph.nodes)):
        return _with_launches(module, settings)
    if not settings.dynamic_shapes and any(True for _ in symbolic(module.graph)):
        return _BySizes(module, settings)
    try:
        graph = Graph.of(module)
        if graph.program is None:
            return _Function(graph, _nothing)
        options = with_gradient_kernels(settings, graph.program.graph)
        lowered = lower(graph.program, output_type=settings.output_type, **options)
    except UsageError:
        raise
    except FxImporterError as error:
        if not settings.falls_back:
            raise
        return _in_parts(module, settings, error)
    (name,) = lowered.manifest.functions
    function = lowered.caller(backend=settings.engine, device=settings.device).unwrapped(name)
    return _Function(graph, fastest(graph.program, lowered, function, settings) if settings.autotune else function)


def _on_device(module: fx.GraphModule, device: torch.device, settings: GraphOptions, error: UsageError) -> Run:
    """Return a function that runs a graph of a device in eager PyTorch, with one warning for all graphs."""
    if not settings.falls_back:
        raise UsageError(f"backend 'fx_importer' cannot compile a graph with tensors on {device}: {error}") from error
    key = (str(settings.engine), device.type)
    if key not in _WARNED:
        _WARNED.add(key)
        warnings.warn(
            f"backend 'fx_importer' runs graphs with tensors on {device} in eager PyTorch: {error}. A backend of the "
            "device, such as IreeBackend(target='cuda:sm_90'), is passed as the option 'engine'",
            EagerFallbackWarning,
            stacklevel=2,
        )
    return _in_eager(module)


def _in_eager(module: fx.GraphModule) -> Run:
    """Return a function that runs the graph of ``module``, which is not modified, in eager PyTorch."""
    return in_eager(fx.GraphModule(module, copy.deepcopy(module.graph)))


def _with_launches(module: fx.GraphModule, settings: GraphOptions) -> Run:
    """Return a function in whose parts Triton launches its kernels, on PyTorch's stream, for an engine that does not.

    Raises `UsageError` if the option ``unsupported`` forbids parts in eager PyTorch.
    """
    if not settings.falls_back:
        raise UsageError(
            f"the graph launches Triton kernels, which the engine '{settings.engine}' does not: leave out the option "
            "'unsupported', for Triton to launch them between parts of the graph"
        )

    def place(node: fx.Node) -> Any:
        return EAGER if launches_triton(node) else place_of(node)

    return in_parts(module, place, lambda part: compiled(part, settings))


def _nothing() -> list[Any]:
    return []


def _in_parts(module: fx.GraphModule, settings: GraphOptions, error: FxImporterError) -> Run:
    """Return a function that runs the operators that are not supported in eager PyTorch, with a warning.

    If all operators are supported, the graph as a whole runs there.
    """
    refused = {node for node, alone in operators_of(module).items() if _is_refused(alone, settings)}
    run = (
        in_parts(
            module,
            lambda node: EAGER if node in refused else place_of(node),
            lambda part: compiled(part, settings),
        )
        if refused
        else _in_eager(module)
    )
    names = ", ".join(dict.fromkeys(str(node.target) for node in module.graph.nodes if node in refused))
    warnings.warn(
        f"backend 'fx_importer' runs {names or 'a whole graph'} in eager PyTorch: {settings.output_type.value} does "
        f"not support it (the option 'unsupported': 'error' makes this an error): {error}",
        EagerFallbackWarning,
        stacklevel=2,
    )
    return run


def _is_refused(part: fx.GraphModule, settings: GraphOptions) -> bool:
    """Return whether a graph cannot be lowered. Nothing is reported, and the answer is kept."""
    key = (settings.key, fingerprint(part))
    if key not in _REFUSED:
        try:
            graph = Graph.of(part)
            if graph.program is not None:
                lower_quietly(graph.program, settings, settings.output_type)
            _REFUSED[key] = settings, False
        except FxImporterError:
            _REFUSED[key] = settings, True
    return _REFUSED[key][1]


class _Function:
    """A lowered graph.

    Args:
        graph: the graph.
        caller: takes the inputs of the program, and returns its outputs.
    """

    def __init__(self, graph: Graph, caller: Callable[..., Sequence[Any]]):
        self._graph = graph
        self._caller = caller
        inputs = [take.position for take in graph.takes if isinstance(take, Given)]
        self._take = _taking(inputs) if len(inputs) == len(graph.takes) else self._with_draws
        """Returns what the program takes."""
        self._as_computed = [*graph.gives] == [ComputedOutput(i, None) for i in range(len(graph.gives))]
        """Whether the results are those of the program."""

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        results = self._caller(*self._take(inputs))
        if self._as_computed:
            return list(results)
        outputs: list[Any] = []
        for origin in self._graph.gives:
            if isinstance(origin, ComputedOutput):
                outputs.append(_laid_out(results[origin.position], origin.order))
            else:
                outputs.append(inputs[origin.position] if isinstance(origin, Given) else origin.value)
        return outputs

    def _with_draws(self, inputs: Sequence[Any]) -> list[Any]:
        graph = self._graph
        sizes = {
            symbol: inputs[position] if axis is None else inputs[position].shape[axis]
            for symbol, (position, axis) in graph.sizes.items()
        }
        drawn = [draw(sizes) for draw in graph.draws]
        return [drawn[take.position] if isinstance(take, Drawn) else inputs[take.position] for take in graph.takes]


def _taking(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that returns the items at ``positions``."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda inputs: [inputs[position] for position in positions]


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
    settings: GraphOptions
    functions: dict[Hashable, Run] = field(default_factory=dict[Hashable, Run])

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        sizes = tuple(input_.shape if isinstance(input_, torch.Tensor) else input_ for input_ in inputs)
        if sizes not in self.functions:
            with preserve_node_meta():  # keep source locations
                static = make_fx(fx.Interpreter(self.module).run, tracing_mode="fake")(*inputs)
            self.functions[sizes] = compiled(static, self.settings)
        return self.functions[sizes](inputs)


def fingerprint(module: fx.GraphModule) -> Hashable:
    """Return a key equal for graphs with the same operators, arguments, sizes (up to symbol names) and constants.

    Names of nodes, weights and source lines are ignored.
    """
    return _Names().graph(module)


@dataclass(frozen=True)
class _Names:
    """Canonical names of symbols, in order of first use."""

    symbols: dict[sympy.Basic, sympy.Symbol] = field(default_factory=dict[sympy.Basic, sympy.Symbol])

    def graph(self, module: fx.GraphModule) -> Hashable:
        numbers = {node: number for number, node in enumerate(module.graph.nodes)}

        def argument(leaf: Any) -> Hashable:
            # Compare the text: 1, 1.0 and True are equal, as are 0.0 and -0.0, and NaN is not equal to itself.
            return ("node", numbers[leaf]) if isinstance(leaf, fx.Node) else (type(leaf).__name__, repr(leaf))

        def row(node: fx.Node) -> Hashable:
            if node.op == "get_attr":
                return node.op, self.attribute(module, str(node.target))
            target = node.target if node.op == "call_function" else None
            leaves, nesting = pytree.tree_flatten((node.args, node.kwargs))
            return node.op, target, tuple(map(argument, leaves)), str(nesting), self.value(node.meta.get("val"))

        return tuple(map(row, module.graph.nodes))

    def attribute(self, module: fx.GraphModule, path: str) -> Hashable:
        value = attrgetter(path)(module)
        if isinstance(value, fx.GraphModule):
            return self.graph(value)
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type == "cpu":
            bits = value.detach().contiguous().view(-1).view(torch.uint8)
            return str(value.dtype), tuple(value.shape), bits.numpy().tobytes()
        return id(value)

    def value(self, example: Any) -> Hashable:
        return tuple(map(self.leaf, pytree.tree_leaves(example)))

    def leaf(self, leaf: Any) -> Hashable:
        if isinstance(leaf, torch.Tensor):
            sizes = (*leaf.shape, *leaf.stride()) if leaf.layout is torch.strided else tuple(leaf.shape)
            return type(leaf).__name__, str(leaf.dtype), str(leaf.layout), str(leaf.device), *map(self.size, sizes)
        return type(leaf).__name__, self.size(leaf)

    def size(self, size: Any) -> Hashable:
        if not isinstance(size, SymInt):
            return str(size)
        for symbol in sorted(size.node.expr.free_symbols, key=str):
            if symbol not in self.symbols:
                limits = size.node.shape_env.bound_sympy(symbol)
                self.symbols[symbol] = sympy.Symbol(f"{len(self.symbols)}: {limits}", **symbol.assumptions0)
        return str(size.node.expr.xreplace(self.symbols))

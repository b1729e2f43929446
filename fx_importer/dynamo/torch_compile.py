"""``torch.compile(model, backend="fx_importer")``: the backend that TorchDynamo calls with each graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch._functorch.partitioners import min_cut_rematerialization_partition

from fx_importer.diagnostics.assumption_messages import message_of
from fx_importer.diagnostics.mlir_diagnostics import read_frames, user_frame
from fx_importer.dynamo.backend_options import GraphOptions
from fx_importer.dynamo.graph_compilation import compiled, forget
from fx_importer.dynamo.random_numbers import RULES
from fx_importer.frontend.assumptions.value_questions import assertion_at
from fx_importer.frontend.scan_check import check_scans

NAME = "fx_importer"


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo: ``torch.compile(model, backend="fx_importer", options={...})``.

    AOTAutograd makes it functional, and adds a backward graph if gradients are needed. Weights and state are inputs,
    read in place.

    Args:
        module: the graph.
        inputs: example values of its inputs.
        options: ``engine``, the name of a backend, or a `Backend`, by default the JIT; ``output_type``, by default
            the first that the engine runs; ``dynamic_shapes``, False for a function for each set of sizes; ``cache``,
            False to recompile graphs that have been compiled; and options of `fx_importer.lower`.
        mode: ``"max-autotune"`` to try engines on the arguments of a graph's first call, and keep the fastest.

    Raises:
        UsageError: for an unknown option or mode, and an engine that is not installed.
        FxImporterError: as `lower` does.
    """
    settings = GraphOptions.of(options, mode)
    check_scans(module)

    def compile_graph(graph: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        run = compiled(graph, settings)

        def call(boxed: list[Any]) -> list[Any]:
            arguments = list(boxed)
            boxed.clear()  # frees AOTAutograd's saved values as early as possible
            return run(arguments)

        call._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]: what AOTAutograd looks for
        return call

    compiler = aot_autograd(
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=RULES,
    )
    return compiler(with_checks(module), inputs)


backend.reset = forget  # pyright: ignore[reportFunctionMemberAccess]: for torch.compiler.reset()


def register() -> None:
    """Register the backend by name if no installed package's metadata does, as in a checkout."""
    if NAME not in entry_points(group="torch_dynamo_backends").names and NAME not in torch._dynamo.list_backends(()):
        register_backend(backend, NAME)


def with_checks(module: fx.GraphModule) -> fx.GraphModule:
    """Return ``module`` with the ``assert`` statements on tensors as checks, whose errors name the statement.

    A program may drop its assertions, but not its checks.
    """
    if not any(_assertions(graph_module.graph) for graph_module in _graph_modules(module)):
        return module
    result = fx.GraphModule(module, copy.deepcopy(module.graph), type(module).__name__)
    for name, child in result.named_children():
        if isinstance(child, fx.GraphModule):
            setattr(result, name, with_checks(child))
    for node in _assertions(result.graph):
        node.update_arg(1, message_of(_text(node)))
    result.recompile()
    return result


def _graph_modules(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    return (part for part in module.modules() if isinstance(part, fx.GraphModule))


def _assertions(graph: fx.Graph) -> list[fx.Node]:
    """Return the calls of ``torch._assert_async(condition, message)``, which TorchDynamo makes of ``assert``."""
    return graph.find_nodes(op="call_function", target=torch._assert_async)  # pyright: ignore[reportPrivateImportUsage]


def _text(node: fx.Node) -> str:
    """Return the condition, the line, and the exception of the model."""
    asserted, *message = node.args
    frame = user_frame(tuple(reversed(read_frames(node.meta.get("stack_trace")))))
    condition, raised = (frame and assertion_at(*frame)) or (
        str(asserted),
        f"RuntimeError({', '.join(map(repr, message))})",
    )
    return (
        f"`{condition}` is True{f', at {frame[0]}:{frame[1]}' if frame else ''} (otherwise the model raises {raised})"
    )

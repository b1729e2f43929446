"""``torch.compile(model, backend="fx_importer")``: the backend that TorchDynamo calls with each graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch._functorch.partitioners import min_cut_rematerialization_partition

from fx_importer.dynamo.backend_options import GraphOptions
from fx_importer.dynamo.graph_assertions import with_checks
from fx_importer.dynamo.graph_compilation import compiled, forget
from fx_importer.dynamo.random_numbers import RULES

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

    def compile_graph(graph: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        run = compiled(graph, settings)

        def call(given: list[Any]) -> list[Any]:
            taken = list(given)
            given.clear()  # frees AOTAutograd's saved values as early as possible
            return run(taken)

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

"""A compiler object with operator registries, whose importer returns a module.

The interface follows the example in Buddy Compiler's README (buddy-compiler/buddy-mlir).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch.utils import _pytree as pytree

from fx_importer.api.lower import lower
from fx_importer.api.lowered import Lowered
from fx_importer.dynamo.aot_graphs import program_of
from fx_importer.dynamo.inductor_operators import rules_of_inductor
from fx_importer.dynamo.ops import linalg, math, tosa
from fx_importer.dynamo.ops.registry import OpsRegistry
from fx_importer.dynamo.tracing import as_new
from fx_importer.errors import ExportError, UsageError
from fx_importer.lowerings import Lowerings
from fx_importer.mlir.bindings import ir
from fx_importer.output_types import OutputType

REGISTRIES = (tosa.ops_registry, linalg.ops_registry, math.ops_registry)


@dataclass
class DynamoCompiler:
    """Imports functions and modules through TorchDynamo and AOTAutograd.

    Each operator is looked up in the primary registry first; operators that neither it nor its passes support are
    looked up in the others, as with `lower`'s ``fallback``.
    """

    func_name: str = "forward"
    primary_registry: OpsRegistry = field(default_factory=lambda: tosa.ops_registry)
    aot_autograd_decomposition: Mapping[Any, Callable[..., Any]] | None = None
    """Decompositions for AOTAutograd, such as Inductor's; the output type's own run after them."""
    lowered: Lowered | None = field(default=None, init=False)
    """The result of the last import, to be run and verified: its inputs are the parameters, then the arguments."""

    def __post_init__(self) -> None:
        if not isinstance(self.primary_registry, OpsRegistry):
            raise UsageError(
                f"primary_registry is the ops_registry of fx_importer.dynamo.ops.tosa, linalg or math, and not "
                f"{self.primary_registry!r}"
            )

    def importer(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[ir.Module, list[torch.Tensor]]:
        """Import a function or a module.

        Returns:
            The module, with one function that takes the parameters and then the tensors among the arguments, in order;
            and the parameters: all tensors that are not arguments, including buffers.

        Raises:
            ExportError: if TorchDynamo does not capture it as a single graph; `import_function` supports several.
            FxImporterError: as `lower` does.
        """
        captured = _captured(fn, args, kwargs, self.aot_autograd_decomposition)
        given = {id(each) for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
        order = sorted(range(len(captured.inputs)), key=lambda i: id(captured.inputs[i]) in given)
        params = [captured.inputs[i] for i in order if id(captured.inputs[i]) not in given]
        program = program_of(_reordered(captured.graph, order))
        primary = self.primary_registry
        others = [
            Lowerings(rule for rule in each.given() if rule.operators[0] not in primary)
            for each in REGISTRIES
            if each is not primary
        ]
        self.lowered = lower(
            program,
            output_type=primary.into,
            func_name=self.func_name,
            fallback=() if primary.into is OutputType.LINALG_ON_TENSORS else OutputType.LINALG_ON_TENSORS,
            lowerings=[Lowerings(primary.rules()), *others],
            extra=rules_of_inductor() if self.aot_autograd_decomposition else None,
        )
        return self.lowered.module, params


@dataclass
class _Captured:
    graph: fx.GraphModule
    inputs: Sequence[Any]
    """The inputs of the graph's call."""


def _captured(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    decompositions: Mapping[Any, Callable[..., Any]] | None,
) -> _Captured:
    """Return the graph of ``fn`` in ATen operators. ``fn`` runs once, in eager PyTorch."""
    found: list[_Captured] = []

    def compiler(graph: fx.GraphModule, _examples: Sequence[Any]) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            found.append(_Captured(graph, inputs))
            return graph(*inputs)

        return run

    if any(getattr(rule, "__module__", "").startswith("torch._inductor") for rule in (decompositions or {}).values()):
        # Some of Inductor's decompositions require it.
        importlib.import_module("torch._inductor.lowering")
    backend = aot_autograd(fw_compiler=compiler, decompositions=dict(decompositions or {}))
    try:
        with as_new(fn), torch.no_grad():
            torch.compile(fn, backend=backend, fullgraph=True, dynamic=False)(*args, **kwargs)
    except TorchDynamoException as error:
        raise ExportError(f"TorchDynamo cannot make one graph of {_name(fn)}: {error}") from error
    if not found:
        raise ExportError(f"{_name(fn)} computes nothing with tensors: there is no graph to import")
    return found[0]


def _reordered(graph: fx.GraphModule, order: Sequence[int]) -> fx.GraphModule:
    """Return ``graph`` with its inputs in another order."""
    new = fx.Graph()
    inputs = graph.graph.find_nodes(op="placeholder")
    known = {inputs[i]: new.node_copy(inputs[i]) for i in order}
    returned = new.graph_copy(graph.graph, known)
    new.output(tuple(returned) if isinstance(returned, list | tuple) else (returned,))
    return fx.GraphModule(graph, new)


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)

"""A compiler object with operator registries, whose importer returns a module.

The interface follows the example in Buddy Compiler's README (buddy-compiler/buddy-mlir).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.api.lower import lower
from fx_importer.dynamo.aot_graphs import measure_sizes, rules_of_inductor, sizes_of
from fx_importer.dynamo.aot_programs import program_of, tokens_of
from fx_importer.dynamo.ops import linalg, math, tosa
from fx_importer.dynamo.ops.registry import NodeEmitter, OpsRegistry
from fx_importer.dynamo.tracing import as_new
from fx_importer.engines.engine_table import stub_engine
from fx_importer.errors import ExportError, UsageError
from fx_importer.frontend.aliased_inputs import without_aliases
from fx_importer.fx_graph.programs import fake_mode_of
from fx_importer.fx_graph.tree_paths import leaves_with_path
from fx_importer.lowerings import Lowerings
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import terminator, update_function_type
from fx_importer.mlir.functions import functions_of
from fx_importer.results.lowered import Lowered

REGISTRIES = (tosa.ops_registry, linalg.ops_registry, math.ops_registry)


@dataclass
class DynamoCompiler:
    """Imports functions and modules through TorchDynamo and AOTAutograd.

    Each operator is looked up in the primary registry first; operators that neither it nor its passes support are
    looked up in the others, as with `lower`'s ``fallback``.
    """

    func_name: str = "forward"
    primary_registry: OpsRegistry | Mapping[Any, NodeEmitter] = field(default_factory=lambda: tosa.ops_registry)
    """A registry, or a dictionary, which becomes one, with TOSA's built-in entries if it has none of its own."""
    aot_autograd_decomposition: Mapping[Any, Callable[..., Any]] | None = None
    """Decompositions for AOTAutograd, such as Inductor's; the output type's own run after them."""
    verbose: bool = False
    """Print the module after each stage."""
    dynamic: bool | None = None
    """As for `torch.compile`: with True, sizes are symbolic; by default, those of ``torch._dynamo.mark_dynamic``."""
    lowered: Lowered | None = field(default=None, init=False)
    """The result of the last import, to be run and verified: its inputs are the parameters, then the arguments. It
    returns a list of the results, and writes to the inputs that the function mutates."""
    results: tuple[str, ...] = field(default=(), init=False)
    """What each result of the last function is: the place of a tensor in the result of the call, ``result['logits']``;
    ``held[0]`` and so on for tensors kept elsewhere, in attributes; and the names of mutated inputs."""

    def __post_init__(self) -> None:
        if isinstance(self.primary_registry, Mapping) and not isinstance(self.primary_registry, OpsRegistry):
            self.primary_registry = OpsRegistry.of(self.primary_registry)
        if not isinstance(self.primary_registry, OpsRegistry):
            raise UsageError(
                f"primary_registry is the ops_registry of fx_importer.dynamo.ops.tosa, linalg or math, or a dictionary "
                f"of functions by operator, and not {self.primary_registry!r}"
            )

    def importer(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[ir.Module, list[torch.Tensor]]:
        """Import a function or a module.

        Returns:
            The module, with one function; and its parameters: all tensors that are not arguments, including buffers.
            The function takes the parameters, and then the tensors among the arguments, in order. It returns the
            tensors in the result of ``fn``, in order; tensors that ``fn`` keeps elsewhere; and the new values of
            tensors that it mutates (`results`). Tensors that share memory with an earlier argument or with state are
            copied first, so that each is an argument of its own.

        Raises:
            ExportError: if TorchDynamo does not capture it as a single graph; `import_function` supports several.
            FxImporterError: as `lower` does.
        """
        args, kwargs = without_aliases(args, kwargs, fn if isinstance(fn, torch.nn.Module) else torch.nn.Module())
        captured, result = _captured(fn, args, kwargs, self.aot_autograd_decomposition, self.dynamic)
        arguments = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        computed = {id(output) for output in captured.outputs}
        returned = [
            leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor) and id(leaf) not in computed
        ]
        captured.take([*arguments, *returned])
        positions = {id(argument): position for position, argument in enumerate(arguments)}
        inputs = captured.inputs
        order = sorted(range(len(inputs)), key=lambda i: positions.get(id(inputs[i]), -1))
        params = [inputs[i] for i in order if isinstance(inputs[i], Tensor) and id(inputs[i]) not in positions]
        program, results = captured.program(order, result)
        primary = self.primary_registry
        assert isinstance(primary, OpsRegistry)
        others = [
            Lowerings(rule for rule in registry.given() if rule.operators[0] not in primary)
            for registry in REGISTRIES
            if registry is not primary
        ]
        lowered = lower(
            program,
            output_type=primary.into,
            func_name=self.func_name,
            fallback=[kind for kind in stub_engine().default_for if kind is not primary.into],
            lowerings=[Lowerings(primary.rules()), *others],
            extra=rules_of_inductor() if self.aot_autograd_decomposition else None,
            verbose=self.verbose,
            mutation="functional",
        )
        with lowered.module.context, ir.Location.unknown():
            self.lowered = _results_first(lowered, self.func_name)
        changed = [
            result.name for result in self.lowered.manifest.functions[self.func_name].results if result.kind == "input"
        ]
        self.results = (*results, *changed)
        return self.lowered.module, params


@dataclass
class _CapturedCall:
    """The graph of a call in ATen operators, with the inputs and outputs of that call."""

    graph: fx.GraphModule
    """Returns the new values of the mutated inputs, and then what TorchDynamo's graph returns."""
    mutated: Sequence[int]
    """The positions of the mutated inputs, in the order of their new values."""
    inputs: Sequence[Any] = ()
    outputs: Sequence[Any] = ()
    """The outputs of TorchDynamo's graph."""

    def take(self, tensors: Sequence[Tensor]) -> None:
        """Add the tensors that the graph does not take as inputs that it does not read."""
        known = {id(input_) for input_ in self.inputs}
        missing = {id(tensor): tensor for tensor in tensors if id(tensor) not in known}
        mode = fake_mode_of(self.graph.graph) or FakeTensorMode()
        first = next(node for node in self.graph.graph.nodes if node.op != "placeholder")
        for number, value in enumerate(missing.values()):
            with self.graph.graph.inserting_before(first):
                node = self.graph.graph.placeholder(f"unused_{number}")
            node.meta["val"] = mode.from_tensor(value, static_shapes=True)
        self.inputs = (*self.inputs, *missing.values())

    def program(self, order: Sequence[int], result: Any) -> tuple[ExportedProgram, list[str]]:
        """Return the program with its inputs in another order, which returns new values of mutated inputs, the tensors
        in ``result``, and other outputs of the graph; and the names of the results."""
        graph, tokens = fx.Graph(), tokens_of(self.graph.graph)
        inputs = [node for node in self.graph.graph.find_nodes(op="placeholder") if node not in tokens]
        copies = {node: graph.node_copy(node) for node in (*tokens, *(inputs[i] for i in order))}
        copied: Any = graph.graph_copy(self.graph.graph, copies)
        effects, rest = list(copied)[: len(tokens)], list(copied)[len(tokens) :]
        changed, returned = rest[: len(self.mutated)], rest[len(self.mutated) :]
        written = dict(zip(self.mutated, changed, strict=True))
        values = [written.get(i, copies[node]) for i, node in enumerate(inputs)]  # of the inputs, after the call
        results, names = list[fx.Node](), list[str]()
        for path, leaf in leaves_with_path(result):
            for name, value in _tensors_of(leaf, f"result{pytree.keystr(path)}", set()):
                result_node = self._of(value, returned, values)
                if result_node is not None:
                    results.append(result_node)
                    names.append(name)
        # Tensors that the function put elsewhere, for example into an attribute.
        kept = [node for node in dict.fromkeys(returned) if isinstance(node, fx.Node) and node not in results]
        names += [f"held[{number}]" for number in range(len(kept))]
        graph.output((*effects, *changed, *results, *kept))
        placeholders = graph.find_nodes(op="placeholder")
        measure_sizes(graph, placeholders, sizes_of(placeholders), outputs=True)
        for node in placeholders:
            if not node.users and not isinstance(node.meta.get("val"), Tensor):
                graph.erase_node(node)
        targets = [copies[inputs[i]].name for i in self.mutated]
        return program_of(fx.GraphModule(self.graph, graph), targets), names

    def _of(self, leaf: Any, returned: Sequence[Any], inputs: Sequence[fx.Node]) -> fx.Node | None:
        """Return the node of a leaf of the result; None if it is neither a tensor nor a size."""
        for values, nodes in ((self.outputs, returned), (self.inputs, inputs)):
            for value, node in zip(values, nodes, strict=True):
                same = value is leaf if isinstance(leaf, Tensor) else type(value) is type(leaf) is int and value == leaf
                if same and isinstance(node, fx.Node):
                    return node
        if isinstance(leaf, Tensor):
            raise ExportError("the function returns a tensor that its graph neither takes nor computes")
        return None


def _tensors_of(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and numbers in ``value``, which may be an object unknown to pytree, such as a cache."""
    if isinstance(value, Tensor | int):
        yield name, value
        return
    if id(value) in seen or isinstance(value, type | torch.nn.Module):
        return
    seen.add(id(value))
    if isinstance(value, list | tuple):
        parts = [(f"{name}[{position}]", item) for position, item in enumerate(value)]
    elif isinstance(value, Mapping):
        parts = [(f"{name}[{key!r}]", item) for key, item in value.items()]
    else:
        parts = [(f"{name}.{key}", item) for key, item in getattr(value, "__dict__", {}).items()]
    for path, part in parts:
        if not isinstance(part, int):  # a number in an object is not a result
            yield from _tensors_of(part, path, seen)


def _captured(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    dynamic: bool | None,
) -> tuple[_CapturedCall, Any]:
    """Return the graph of ``fn``, and its result. ``fn`` runs once, in eager PyTorch."""
    captures: list[_CapturedCall] = []

    def compiler(graph: fx.GraphModule, _examples: Sequence[Any]) -> Callable[..., Any]:
        metadata: Any = TracingContext.get().fw_metadata
        captured = _CapturedCall(graph, metadata.mutated_inp_runtime_indices)
        captures.append(captured)

        def run(*inputs: Any) -> Any:
            captured.inputs = inputs
            return graph(*inputs)

        return run

    if any(getattr(rule, "__module__", "").startswith("torch._inductor") for rule in (decompositions or {}).values()):
        # Some of Inductor's decompositions require it.
        importlib.import_module("torch._inductor.lowering")
    of_graph = aot_autograd(fw_compiler=compiler, decompositions=dict(decompositions or {}))

    def backend(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        compiled = of_graph(module, examples)

        def run(*inputs: Any) -> Any:
            returned = compiled(*inputs)
            captures[-1].inputs, captures[-1].outputs = inputs, returned
            return returned

        return run

    try:
        with as_new(fn), torch.no_grad():
            result = torch.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic)(*args, **kwargs)
    except TorchDynamoException as error:
        raise ExportError(f"TorchDynamo cannot make one graph of {_name(fn)}: {error}") from error
    if not captures:
        raise ExportError(f"{_name(fn)} computes nothing with tensors: there is no graph to import")
    return captures[0], result


def _results_first(lowered: Lowered, name: str) -> Lowered:
    """Return ``lowered`` with the new values of mutated inputs as the last results of the function, in its module."""
    record = lowered.manifest.functions[name]
    order = sorted(range(len(record.results)), key=lambda i: record.results[i].kind != "output")
    if order == list(range(len(order))):
        return lowered
    function = functions_of(lowered.module)[name]
    ending = terminator(function.entry_block)
    returned = [ending.operands[i] for i in order]
    for position, value in enumerate(returned):
        ending.operands[position] = value
    update_function_type(function)
    if "res_attrs" in function.attributes:
        attributes = ir.ArrayAttr(function.attributes["res_attrs"])
        function.attributes["res_attrs"] = ir.ArrayAttr.get([attributes[i] for i in order])
    functions = {**lowered.manifest.functions, name: replace(record, results=tuple(record.results[i] for i in order))}
    return replace(lowered, manifest=replace(lowered.manifest, functions=functions))


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)

"""Conversion of an AOTAutograd graph to an exported program of its computation.

The graph takes parameters, sizes and saved values that it does not use, and returns some inputs unchanged; the program
omits these. It is functional, and its nodes have example values.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import SymInt, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
    TokenArgument,
)
from torch.fx.graph import CodeGen
from torch.utils import _pytree as pytree

from fx_importer.dynamo.random_numbers import Draw, draw_outside
from fx_importer.fx_graph.programs import fake_mode_of


@dataclass(frozen=True)
class Given:
    """An input of the graph."""

    position: int


@dataclass(frozen=True)
class Drawn:
    """Random numbers that PyTorch draws before the program runs."""

    position: int


@dataclass(frozen=True)
class Computed:
    """A result of the program."""

    position: int
    order: tuple[int, ...] | None = None
    """The axes in order of decreasing stride, if the result is not in row-major order."""


@dataclass(frozen=True)
class Known:
    """A constant output of the graph: None or a number."""

    value: Any


@dataclass(frozen=True)
class Graph:
    """The program that a graph computes, and the mapping of its inputs and outputs to those of the program."""

    program: ExportedProgram | None
    """None if nothing is computed."""
    draws: tuple[Draw, ...]
    takes: tuple[Given | Drawn, ...]
    gives: tuple[Given | Computed | Known, ...]
    sizes: Mapping[sympy.Symbol, tuple[int, int | None]]
    """For the draws: the input position of each symbol's size, and its axis; None as axis if the input is the size."""

    @classmethod
    def of(cls, module: fx.GraphModule) -> Graph:
        """Return the parts of the graph of ``module``, which is not modified."""
        graph = copy.deepcopy(module.graph)
        graph.set_codegen(CodeGen())  # AOTAutograd's code generator takes its arguments in a list
        inputs = graph.find_nodes(op="placeholder")
        sizes = sizes_of(inputs)
        measure_sizes(graph, inputs, sizes)
        draws = draw_outside(graph)
        positions: dict[fx.Node, Given | Drawn] = {node: Given(i) for i, node in enumerate(inputs)}
        drawn = [node for node in graph.find_nodes(op="placeholder") if node not in positions]
        positions |= {node: Drawn(i) for i, node in enumerate(drawn)}

        given = {node: each for node, each in positions.items() if isinstance(each, Given)}
        returned, effects, computed = _apart(graph, given)
        if not computed and not effects:
            return cls(None, (), (), returned, {})
        graph.output_node().args = ((*effects, *computed),)
        graph.eliminate_dead_code()
        for node in positions:
            if not node.users and node.graph is graph:
                graph.erase_node(node)
        tokens = tokens_of(graph)
        takes = tuple(positions[node] for node in graph.find_nodes(op="placeholder") if node not in tokens)
        return cls(program_of(fx.GraphModule(module, graph)), draws, takes, returned, sizes if draws else {})


def sizes_of(inputs: Sequence[fx.Node]) -> dict[sympy.Symbol, tuple[int, int | None]]:
    """Return the input position and axis of each symbol's size; None as axis if the input is the size itself.

    A tensor axis takes precedence.
    """
    examples = [node.meta.get("val") for node in inputs]
    found: dict[Any, tuple[int, int | None]] = {}
    for position, example in enumerate(examples):
        if isinstance(example, torch.Tensor):
            for axis, size in enumerate(example.shape):
                if isinstance(size, SymInt):
                    found.setdefault(size.node.expr, (position, axis))
    for position, example in enumerate(examples):
        if isinstance(example, SymInt):
            found.setdefault(example.node.expr, (position, None))
    return {symbol: place for symbol, place in found.items() if symbol.is_symbol}


def measure_sizes(
    graph: fx.Graph,
    inputs: Sequence[fx.Node],
    sizes: Mapping[sympy.Symbol, tuple[int, int | None]],
    *,
    outputs: bool = False,
) -> None:
    """Replace uses of size inputs by the size of a tensor input along an axis, where one has it.

    ``outputs`` includes the uses as an output.
    """
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for node in inputs:
            example = node.meta.get("val")
            computing = [user for user in node.users if outputs or user.op != "output"]
            if not isinstance(example, SymInt) or not computing:
                continue
            position, axis = sizes.get(example.node.expr, (0, None))
            if axis is None:
                continue
            size = graph.call_function(torch.ops.aten.sym_size.int, (inputs[position], axis))
            size.meta["val"] = example
            for user in computing:
                user.replace_input_with(node, size)


def tokens_of(graph: fx.Graph) -> list[fx.Node]:
    """Return the inputs that are effect tokens, threaded by AOTAutograd through operators with effects."""
    effects = graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects)
    return list(dict.fromkeys(effect.args[0] for effect in effects if effect.args[0].op == "placeholder"))


def given_token(node: fx.Node) -> fx.Node | None:
    """Return the input that begins the chain of effects that ends with the token ``node``; None if it is no token."""
    effect: Any = node.args[0] if node.target is operator.getitem and node.args[1] == 0 else None
    if not isinstance(effect, fx.Node) or effect.target is not torch.ops.higher_order.with_effects:
        return None
    before: Any = effect.args[0]
    return before if before.op == "placeholder" else given_token(before)


def _apart(
    graph: fx.Graph, inputs: dict[fx.Node, Given]
) -> tuple[tuple[Given | Computed | Known, ...], list[fx.Node], list[fx.Node]]:
    """Return the origin of each output of ``graph``, the last token of each chain of effects, and the distinct computed
    outputs. For a token, which has no value, the given one is returned."""
    outputs: Any = graph.output_node().args[0]
    computed: dict[fx.Node, int] = {}
    effects: list[fx.Node] = []
    origins: list[Given | Computed | Known] = []
    for each in outputs:
        if not isinstance(each, fx.Node):
            origins.append(Known(each))
        elif each in inputs:
            origins.append(inputs[each])
        elif token := given_token(each):
            origins.append(inputs[token])
            effects.append(each)
        else:
            position = computed.setdefault(each, len(computed))
            origins.append(Computed(position, _order(each.meta.get("val"))))
    return tuple(origins), effects, list(computed)


def _order(example: Any) -> tuple[int, ...] | None:
    """Return the order of the axes of a dense tensor by stride; None if it is row-major or not dense.

    Tensors that AOTAutograd makes views of must have the memory layout that they had when the graph was traced.
    """
    if not isinstance(example, torch.Tensor):
        return None
    sizes, strides = _hints(example.shape), _hints(example.stride())
    if sizes is None or strides is None:
        return None
    order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], sizes[axis] == 1))
    wide = [axis for axis in order if sizes[axis] != 1]
    dense_stride = 1
    for axis in reversed(wide):
        if strides[axis] != dense_stride:
            return None
        dense_stride *= sizes[axis]
    return None if wide == sorted(wide) else tuple(order)


def _hints(sizes: Sequence[Any]) -> list[int] | None:
    """Return the sizes at trace time; None if one is unknown."""
    found = [size.node.hint if isinstance(size, SymInt) else size for size in sizes]
    return None if None in found else [int(size) for size in found]


_READ = frozenset(("val", "stack_trace", "nn_module_stack", "unbacked_bindings"))
"""The metadata of nodes that the compilation reads. That of AOTAutograd would keep programs out of the cache."""


def program_of(module: fx.GraphModule, mutated: Sequence[str] = ()) -> ExportedProgram:
    """Return the graph of ``module`` as an exported program, with all placeholders as user inputs but effect tokens.

    The outputs are the effect tokens, the new values of the inputs named in ``mutated``, and the results.
    """
    for each in (module, *(part for part in module.modules() if isinstance(part, fx.GraphModule))):
        for node in each.graph.nodes:
            node.meta = {key: value for key, value in node.meta.items() if key in _READ}
    tokens = [TokenArgument(node.name) for node in _first(module.graph, tokens_of(module.graph))]
    inputs = [_argument(node) for node in module.graph.find_nodes(op="placeholder")[len(tokens) :]]
    constants = _constants(module)
    returned: Any = module.graph.output_node().args[0]
    effects = [TokenArgument(node.name) for node in returned if isinstance(node, fx.Node) and given_token(node)]
    outputs = [_argument(node) for node in returned[len(effects) :]]
    changed, outputs = outputs[: len(mutated)], outputs[len(mutated) :]
    call = ModuleCallSignature(
        [],
        [],
        pytree.tree_structure((tuple(range(len(inputs))), {})),
        pytree.tree_structure(list(range(len(outputs)))),
    )
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature(
            [
                *(InputSpec(InputKind.TOKEN, each, None) for each in tokens),
                *(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), name) for name in constants),
                *(InputSpec(InputKind.USER_INPUT, each, None) for each in inputs),
            ],
            [
                *(OutputSpec(OutputKind.TOKEN, each, None) for each in effects),
                *(
                    OutputSpec(OutputKind.USER_INPUT_MUTATION, each, name)
                    for each, name in zip(changed, mutated, strict=True)
                ),
                *(OutputSpec(OutputKind.USER_OUTPUT, each, None) for each in outputs),
            ],
        ),
        state_dict={},
        range_constraints=_ranges(module.graph),
        module_call_graph=[ModuleCallEntry("", call)],
        constants=constants,
    )


def _first(graph: fx.Graph, nodes: list[fx.Node]) -> list[fx.Node]:
    """Move placeholders to the start of ``graph``, and return them."""
    for node in reversed(nodes):
        next(iter(graph.nodes)).prepend(node)
    return nodes


def _constants(module: fx.GraphModule) -> dict[str, Any]:
    """Turn the tensors that ``module`` holds into leading placeholders; return them by name."""
    held: dict[str, Any] = {}
    tokens = tokens_of(module.graph)
    first = next(node for node in module.graph.nodes if node not in tokens)
    mode = fake_mode_of(module.graph) or FakeTensorMode()
    for node in module.graph.find_nodes(op="get_attr"):
        tensor = held_by(module, node.target)
        if not isinstance(tensor, torch.Tensor):
            continue
        with module.graph.inserting_before(first):
            constant = module.graph.placeholder(f"constant_{len(held)}")
        constant.meta.update(node.meta)
        constant.meta["val"] = mode.from_tensor(tensor)
        node.replace_all_uses_with(constant)
        module.graph.erase_node(node)
        held[constant.name] = tensor
    module.recompile()
    return held


def held_by(module: fx.GraphModule, path: str) -> Any:
    """Return the attribute of ``module``, or of one of its submodules, at ``path``."""
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)


_ARGUMENTS: dict[type, type[TensorArgument | SymIntArgument | SymFloatArgument | SymBoolArgument]] = {
    torch.Tensor: TensorArgument,
    SymInt: SymIntArgument,
    torch.SymFloat: SymFloatArgument,
    torch.SymBool: SymBoolArgument,
}


def _argument(node: fx.Node) -> ArgumentSpec:
    example = node.meta.get("val")
    for kind, spec in _ARGUMENTS.items():
        if isinstance(example, kind):
            return spec(node.name)
    return ConstantArgument(node.name, example)


def symbolic(graph: fx.Graph) -> Iterator[SymInt]:
    """Yield every symbolic size in the example values."""
    for node in graph.nodes:
        for each in pytree.tree_leaves(node.meta.get("val")):
            sizes = each.shape if isinstance(each, torch.Tensor) else (each,)
            yield from (size for size in sizes if isinstance(size, SymInt))


def _ranges(graph: fx.Graph) -> dict[Any, Any]:
    """Return the value range of each symbol of ``graph``."""
    return {
        symbol: size.node.shape_env.bound_sympy(symbol)
        for size in symbolic(graph)
        for symbol in size.node.expr.free_symbols
    }

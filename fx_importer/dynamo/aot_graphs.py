"""Conversion of an AOTAutograd graph to an exported program of its computation.

The graph takes parameters, sizes and saved values that it does not use, and returns some inputs unchanged; the program
omits these. It is functional, and its nodes have example values.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import SymInt, fx
from torch.export import ExportedProgram
from torch.fx.graph import CodeGen

from fx_importer.dynamo.aot_programs import given_token, program_of, tokens_of
from fx_importer.dynamo.random_numbers import Draw, draw_outside


@dataclass(frozen=True)
class Given:
    """An input of the graph."""

    position: int


@dataclass(frozen=True)
class Drawn:
    """Random numbers that PyTorch draws before the program runs."""

    position: int


@dataclass(frozen=True)
class ComputedOutput:
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
    """The program that a graph computes, and how its inputs and outputs map to the program's."""

    program: ExportedProgram | None
    """None if nothing is computed."""
    draws: tuple[Draw, ...]
    takes: tuple[Given | Drawn, ...]
    gives: tuple[Given | ComputedOutput | Known, ...]
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

        passed = {node: position for node, position in positions.items() if isinstance(position, Given)}
        returned, effects, computed = _apart(graph, passed)
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
    sources: dict[Any, tuple[int, int | None]] = {}
    for position, example in enumerate(examples):
        if isinstance(example, torch.Tensor):
            for axis, size in enumerate(example.shape):
                if isinstance(size, SymInt):
                    sources.setdefault(size.node.expr, (position, axis))
    for position, example in enumerate(examples):
        if isinstance(example, SymInt):
            sources.setdefault(example.node.expr, (position, None))
    return {symbol: source for symbol, source in sources.items() if symbol.is_symbol}


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


def _apart(
    graph: fx.Graph, inputs: dict[fx.Node, Given]
) -> tuple[tuple[Given | ComputedOutput | Known, ...], list[fx.Node], list[fx.Node]]:
    """Return the origin of each output of ``graph``, the last token of each chain of effects, and the distinct computed
    outputs. For a token, which has no value, the given one is returned."""
    outputs: Any = graph.output_node().args[0]
    computed: dict[fx.Node, int] = {}
    effects: list[fx.Node] = []
    origins: list[Given | ComputedOutput | Known] = []
    for output in outputs:
        if not isinstance(output, fx.Node):
            origins.append(Known(output))
        elif output in inputs:
            origins.append(inputs[output])
        elif token := given_token(output):
            origins.append(inputs[token])
            effects.append(output)
        else:
            position = computed.setdefault(output, len(computed))
            origins.append(ComputedOutput(position, _order(output.meta.get("val"))))
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
    hints = [size.node.hint if isinstance(size, SymInt) else size for size in sizes]
    return None if None in hints else [int(size) for size in hints]


def rules_of_inductor() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of operators that only Inductor's decompositions introduce."""
    prims, made = torch.ops.prims, importlib.import_module("torch._inductor.inductor_prims")
    return {
        prims._low_memory_max_pool_with_offsets.default: made._low_memory_max_pool_with_offsets_aten,
        prims._low_memory_max_pool_offsets_to_indices.default: made._low_memory_max_pool_offsets_to_indices_aten,
    }

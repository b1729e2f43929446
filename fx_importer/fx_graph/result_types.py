"""Types of a program's results after decomposition, compared with those before it; programs of a single result."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch import SymInt, Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node_at
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import copied_graph, fake_mode_of, with_graph

_TRIED = (2, 3, 5, 8, 13, 64)
"""Sizes to tell with whether an expression is constant, as far as they are in the ranges of its symbols."""


def check_types_of_results(program: ExportedProgram, exported: ExportedProgram) -> None:
    """Check that the results of ``program``, after decomposition, have the dtypes and sizes of ``exported``.

    A rule may compute another type; torch traces the whole program with it.

    Raises:
        UnsupportedProgramError: naming the operators of the results.
    """
    computed, expected = _results(program), _results(exported)
    pairs = list(zip(computed, expected, strict=True)) if len(computed) == len(expected) else []
    wrong = [difference for ours, theirs in pairs for difference in _differences(ours, theirs, exported)]
    if wrong:
        subject = "1 result has" if len(wrong) == 1 else f"{len(wrong)} results have"
        raise UnsupportedProgramError(
            f"{subject} another type after the decompositions. A rule of extra=, decomposition_table= or lowerings= "
            "returns the dtype and the sizes of its operator, also where sizes are dynamic:",
            wrong,
        )


def _results(program: ExportedProgram) -> list[Any]:
    """Return what the outputs of the user are, in order."""
    specs, values = program.graph_signature.output_specs, program.graph.output_node().args[0]
    kinds = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
    return [value for spec, value in zip(specs, values, strict=True) if spec.kind in kinds]  # type: ignore[arg-type]


def _differences(computed: Any, expected: Any, exported: ExportedProgram) -> Iterator[UnsupportedNode]:
    if not isinstance(computed, fx.Node) or not isinstance(expected, fx.Node):
        return
    ours, theirs = computed.meta.get("val"), expected.meta.get("val")
    if not isinstance(ours, Tensor) or not isinstance(theirs, Tensor):
        return
    origin, reason = expected, ""
    if ours.dtype != theirs.dtype:
        reason = f"the result is {theirs.dtype} in the exported program, and {ours.dtype} after its decompositions"
    elif ours.dim() != theirs.dim():
        reason = f"the result has {theirs.dim()} axes in the exported program, and {ours.dim()} after"
    for axis, (size, now) in enumerate(zip(theirs.shape, ours.shape, strict=not reason)):
        if not reason and isinstance(now, int) and not may_be(size, now, exported):
            origin = origin_of_size(size, exported) or expected
            reason = f"size {axis} of the result is {size} in the exported program, and {now} after its decompositions"
    if reason:
        yield unsupported_node_at(origin, f"{origin.name} = {origin.target}", reason)


def may_be(size: int | SymInt, lowered: int, program: ExportedProgram) -> bool:
    """Return whether ``size`` is ``lowered`` for all inputs."""
    if not isinstance(size, SymInt):
        return size == lowered
    expression: sympy.Expr = size.node.expr
    if free_unbacked_symbols(expression):  # sizes that constants determine are numbers by now
        return not _depends_on_inputs(origin_of_size(size, program), program)
    ranges = getattr(getattr(fake_mode_of(program.graph), "shape_env", None), "var_to_range", {})
    for offset in range(len(_TRIED)):
        values: dict[Any, int] = {}
        for number, symbol in enumerate(sorted(expression.free_symbols, key=str)):
            bounds, tried = ranges.get(symbol), _TRIED[(offset + number) % len(_TRIED)]
            within = bounds is None or bool(bounds.lower <= tried <= bounds.upper)
            values[symbol] = tried if bounds is None or within else int(bounds.lower)
        if expression.subs(values) != lowered:
            return False
    return True


def origin_of_size(size: int | SymInt, program: ExportedProgram) -> fx.Node | None:
    """Return the first operator whose result has a symbol of ``size``; None for a size that is a number."""
    symbols = size.node.expr.free_symbols if isinstance(size, SymInt) else set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, Tensor) else (value,)
        here: set[Any] = set().union(
            *(symbolic.node.expr.free_symbols for symbolic in sizes if isinstance(symbolic, SymInt))
        )
        if node.op == "call_function" and isinstance(value, Tensor) and symbols & here:
            return node
    return None


def _depends_on_inputs(node: fx.Node | None, program: ExportedProgram) -> bool:
    """Return whether ``node`` is computed from the values of an input, and not of its sizes alone."""
    inputs = frozenset(program.graph_signature.user_inputs)
    seen: set[fx.Node] = set()
    waiting = [] if node is None else [node]
    while waiting:
        node = waiting.pop()
        if node not in seen and node.target is not aten.sym_size.int:
            seen.add(node)
            waiting += node.all_input_nodes
    return any(node.op == "placeholder" and node.name in inputs for node in seen)


def with_one_result(program: ExportedProgram, number: int, *, without: int = 0) -> ExportedProgram:
    """Return a copy of ``program`` that returns one tensor of those its model returns, and updates the same state.

    Args:
        program: of a model that returns a tuple of tensors.
        number: the index of the tensor.
        without: the number of positional arguments at the end that the copy does not take: tensors on whose values
            neither the result nor the state depends, of sizes that other inputs have.
    """
    graph = copied_graph(program.graph)
    signature, output = program.graph_signature, graph.output_node()
    returned: Any = output.args[0]
    user = [at for at, spec in enumerate(signature.output_specs) if spec.kind is OutputKind.USER_OUTPUT]
    kept = [at for at in range(len(returned)) if at not in user or at == user[number]]
    output.args = (tuple(returned[at] for at in kept),)
    graph.eliminate_dead_code()

    call = program.module_call_graph[0].signature
    assert call is not None
    args, kwargs = pytree.tree_unflatten(list(range(call.in_spec.num_leaves)), call.in_spec)
    gone, called = args[len(args) - without :], call.forward_arg_names
    specs = [spec for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    names = {specs[at].arg.name for at in gone}
    erased, others = [], []
    for node in graph.find_nodes(op="placeholder"):
        (erased if node.name in names else others).append(node)
    for node in erased:
        _read_sizes_of(others, node)
        graph.erase_node(node)
    changed = with_graph(
        program,
        graph,
        ExportGraphSignature(list(signature.input_specs), [signature.output_specs[at] for at in kept]),
    )
    if guards := getattr(program, "_guards_code", None):  # tracing again evaluates them
        changed._guards_code = [guard for guard in guards if not any(f"L['{name}']" in guard for name in names)]
    changed._module_call_graph = copy.copy(program.module_call_graph)
    changed._module_call_graph[0] = dataclasses.replace(
        program.module_call_graph[0],
        signature=dataclasses.replace(
            call,
            in_spec=pytree.tree_structure((args[: len(args) - without], kwargs)),
            out_spec=pytree.tree_structure(0),
            forward_arg_names=called and called[: len(args) - without] + called[len(args) :],
        ),
    )
    examples, named = program.example_inputs or ((), {})
    changed._example_inputs = (examples[: len(args) - without], named)
    return changed


def _read_sizes_of(nodes: Sequence[fx.Node], node: fx.Node) -> None:
    """Read the dynamic sizes of ``node`` from inputs of the same sizes among ``nodes`` (export reads one for all)."""
    sizes = {str(size): (node, axis) for node in nodes for axis, size in enumerate(_shape(node))}
    for user in tuple(node.users):
        if user.target is torch.ops.aten.sym_size.int:
            axis: Any = user.args[1]
            user.args = sizes[str(_shape(node)[axis])]


def _shape(node: fx.Node) -> Sequence[Any]:
    value = node.meta.get("val")
    return value.shape if isinstance(value, torch.Tensor) else ()

"""Fits a canonical program to what an output type can hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from fx_importer.canonicalization.complex_pairs import ComplexPairs
from fx_importer.canonicalization.node_rewriting import value_of
from fx_importer.canonicalization.signless_types import CARRIERS, CONVERSIONS, MOVES
from fx_importer.canonicalization.unsigned_integers import SignedCarriers
from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.fx_graph.programs import with_rewritten_graphs, with_rewritten_modules


@dataclass(frozen=True)
class Dtypes:
    """What an output type can hold, of the dtypes that the torch dialect has."""

    name: str
    """The output type, as errors name it."""
    lacks: frozenset[torch.dtype] = frozenset()
    """A tensor of such a dtype is an error."""
    moves: frozenset[torch.dtype] = frozenset()
    """Tensors of such a dtype can be moved and converted, but not computed with ..."""
    computes: frozenset[Any] = frozenset()
    """... other than by these operators."""
    pairs: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict)
    """Complex dtypes for which it is given two tensors of a real one: by the complex dtype, the real one."""
    sparse: bool = True
    """Whether its types can say how a sparse tensor is stored."""
    unsigned: bool = True
    """Whether it tells unsigned integers from signed ones. If not, it is given signed ones of the same bits."""


def legalize(program: ExportedProgram, dtypes: Dtypes) -> ExportedProgram:
    """Return ``program`` with tensors of no other dtypes than ``dtypes`` allows; the given program is left alone.

    Raises:
        UnsupportedProgramError: listing every tensor that the output type cannot hold, and every operation on complex
            numbers or unsigned integers that it cannot compute.
    """
    found = {each for node in _nodes(program) for each in _dtypes(node)}
    unsupported_nodes = [*_sparse(program, dtypes)]
    if found & {*dtypes.lacks, *dtypes.moves}:
        unsupported_nodes = [*_lacking(program, dtypes), *_not_computed(program, dtypes), *unsupported_nodes]
    pairs, carriers = ComplexPairs(dtypes.pairs), SignedCarriers()
    if found & {*dtypes.pairs} and not unsupported_nodes:
        program = with_rewritten_graphs(program, pairs.rewrite)
        unsupported_nodes = pairs.unsupported_nodes
    if not dtypes.unsigned and found & {*CARRIERS} and not unsupported_nodes:
        program = with_rewritten_graphs(program, carriers.rewrite)
        unsupported_nodes = carriers.unsupported_nodes
    if unsupported_nodes:
        raise UnsupportedProgramError(
            f"stage 'legalize' failed: {dtypes.name} cannot hold what the program computes with:", unsupported_nodes
        )
    return program


def legalize_graph(module: fx.GraphModule, dtypes: Dtypes) -> fx.GraphModule:
    """Return a graph of operators with pairs in the place of complex numbers, and signed integers in that of unsigned
    ones, where ``dtypes`` has no others.

    Raises:
        UnsupportedProgramError: listing every operation on one of these that cannot be computed.
    """
    pairs, carriers = ComplexPairs(dtypes.pairs), SignedCarriers()
    if dtypes.pairs:
        module = with_rewritten_modules(module, pairs.rewrite)
    if not dtypes.unsigned and not pairs.unsupported_nodes:
        module = with_rewritten_modules(module, carriers.rewrite)
    if unsupported_nodes := [*pairs.unsupported_nodes, *carriers.unsupported_nodes]:
        raise UnsupportedProgramError(
            f"stage 'legalize' failed: {dtypes.name} cannot hold what the program computes with:", unsupported_nodes
        )
    return module


def _lacking(program: ExportedProgram, dtypes: Dtypes) -> list[UnsupportedNode]:
    """Return the refusal of every tensor where a dtype comes up that is lacking; not of what is computed from it."""
    found: list[UnsupportedNode] = []
    if not dtypes.lacks:
        return found
    names = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target}
    for node in _nodes(program):
        new = _dtypes(node) & dtypes.lacks
        if new and not any(_dtypes(source) & dtypes.lacks for source in node.all_input_nodes):
            what = f"'{names[node.name]}' is a tensor" if node.name in names else "a tensor"
            found.append(unsupported_node(node, f"{what} of {_listed(new)}, which {dtypes.name} does not have"))
    return found


def _not_computed(program: ExportedProgram, dtypes: Dtypes) -> Iterator[UnsupportedNode]:
    """Yield the refusal of every operator that would compute with tensors that can only be moved."""
    free = MOVES | {*CONVERSIONS, *dtypes.computes}
    for node in _nodes(program) if dtypes.moves else ():
        computes = isinstance(node.target, OpOverload) and node.target.namespace in ("aten", "prims")
        if (
            computes
            and node.target not in free
            and any(isinstance(e, torch.Tensor) for e in tree_leaves(value_of(node)))
        ):
            given = {each for source in node.all_input_nodes for each in _dtypes(source)} & dtypes.moves
            if given:
                yield unsupported_node(
                    node,
                    f"it computes with tensors of {_listed(given)}, which {dtypes.name} can hold, but not compute "
                    "this with: use real numbers, as of torch.view_as_real",
                )


def _sparse(program: ExportedProgram, dtypes: Dtypes) -> Iterator[UnsupportedNode]:
    for node in program.graph.nodes if not dtypes.sparse else ():
        value = value_of(node)
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            reason = f"a tensor of {value.dtype} stored as {value.layout}, and {dtypes.name} has dense tensors only"
            yield unsupported_node(node, f"{reason}: give it as `to_dense()`")


def _nodes(program: ExportedProgram) -> Iterator[fx.Node]:
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            yield from module.graph.nodes


def _listed(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted(map(str, dtypes)))


def _dtypes(node: fx.Node) -> set[torch.dtype]:
    if isinstance(value := value_of(node), torch.Tensor):
        return {value.dtype}
    return {each.dtype for each in tree_leaves(value_of(node)) if isinstance(each, torch.Tensor)}

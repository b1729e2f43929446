"""Legalization of the dtypes of a canonical program for an output type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.programs import with_rewritten_graphs, with_rewritten_modules
from fx_importer.fx_passes.emulation.complex_pairs import ComplexPairs
from fx_importer.fx_passes.emulation.signless_types import CONVERSIONS, DATA_MOVEMENT, SIGNED_DTYPES
from fx_importer.fx_passes.emulation.unsigned_integers import SignlessEmulation
from fx_importer.fx_passes.fx_pass import FxPass


@dataclass(frozen=True)
class Dtypes:
    """The dtypes of the torch dialect that an output type supports."""

    name: str
    """Name of the output type in errors."""
    lacks: frozenset[torch.dtype] = frozenset()
    """Unsupported dtypes: a tensor of one is an error."""
    inside: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict)
    """Dtypes that are computed in narrower ones: those."""
    inside_only: frozenset[torch.dtype] = frozenset()
    """Dtypes that an input, a weight that is an argument or a result cannot have."""
    moves: frozenset[torch.dtype] = frozenset()
    """Dtypes with data movement and conversions, but without arithmetic ..."""
    computes: frozenset[Any] = frozenset()
    """... other than these operators."""
    pairs: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict)
    """Complex dtypes to emulate by pairs of real tensors: the real dtype by complex dtype."""
    sparse: bool = True
    """Whether its types can encode sparse layouts."""
    unsigned: bool = True
    """Whether it has unsigned integers. If not, they are emulated by signed ones of the same width."""
    numbers: torch.dtype = torch.float64
    """The dtype of Python's floating-point numbers, where they become rank-0 tensors."""


def legalize(program: ExportedProgram, dtypes: Dtypes) -> ExportedProgram:
    """Return ``program`` with only dtypes that ``dtypes`` supports. The given program is not changed.

    Raises:
        UnsupportedProgramError: listing every tensor of an unsupported dtype, and every operator on complex or
            unsigned tensors that cannot be emulated.
    """
    present = {dtype for node in nodes_of(program) for dtype in dtypes_of(node)}
    unsupported_nodes = [*_sparse_inputs(program, dtypes)]
    if present & dtypes.inside_only:
        unsupported_nodes += _unsupported_at_the_boundary(program, dtypes)
    if present & {*dtypes.lacks, *dtypes.moves}:
        unsupported_nodes = [
            *_unsupported_dtypes(program, dtypes),
            *_unsupported_arithmetic(program, dtypes),
            *unsupported_nodes,
        ]
    pairs, signless = ComplexPairs(dtypes.pairs), SignlessEmulation()
    if present & {*dtypes.pairs} and not unsupported_nodes:
        program = with_rewritten_graphs(program, pairs.rewrite)
        unsupported_nodes = pairs.unsupported_nodes
    if not dtypes.unsigned and present & {*SIGNED_DTYPES} and not unsupported_nodes:
        program = with_rewritten_graphs(program, signless.rewrite)
        unsupported_nodes = signless.unsupported_nodes
    if unsupported_nodes:
        raise UnsupportedProgramError(
            f"pass 'legalize-dtypes' failed: {dtypes.name} cannot hold what the program computes with:",
            unsupported_nodes,
        )
    return program


def legalize_graph(module: fx.GraphModule, dtypes: Dtypes) -> fx.GraphModule:
    """Return ``module`` with complex and unsigned tensors emulated where ``dtypes`` says so.

    Raises:
        UnsupportedProgramError: listing every operator on them that cannot be emulated.
    """
    pairs, signless = ComplexPairs(dtypes.pairs), SignlessEmulation()
    if dtypes.pairs:
        module = with_rewritten_modules(module, pairs.rewrite)
    if not dtypes.unsigned and not pairs.unsupported_nodes:
        module = with_rewritten_modules(module, signless.rewrite)
    if unsupported_nodes := [*pairs.unsupported_nodes, *signless.unsupported_nodes]:
        raise UnsupportedProgramError(
            f"pass 'legalize-dtypes' failed: {dtypes.name} cannot hold what the program computes with:",
            unsupported_nodes,
        )
    return module


def _unsupported_dtypes(program: ExportedProgram, dtypes: Dtypes) -> list[UnsupportedNode]:
    """Return every node that introduces an unsupported dtype, without the nodes that compute from it."""
    nodes: list[UnsupportedNode] = []
    if not dtypes.lacks:
        return nodes
    names = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target}
    for node in nodes_of(program):
        new = dtypes_of(node) & dtypes.lacks
        if new and not any(dtypes_of(source) & dtypes.lacks for source in node.all_input_nodes):
            what = f"'{names[node.name]}' is a tensor" if node.name in names else "a tensor"
            nodes.append(unsupported_node(node, f"{what} of {_joined_names(new)}, which {dtypes.name} does not have"))
    return nodes


def _unsupported_at_the_boundary(program: ExportedProgram, dtypes: Dtypes) -> Iterator[UnsupportedNode]:
    """Yield every input and result of a dtype that only the inside of a program may have."""
    results = program.graph.output_node().all_input_nodes
    for node in dict.fromkeys((*program.graph.find_nodes(op="placeholder"), *results)):
        is_weight = node.op == "placeholder" and node.name not in program.graph_signature.user_inputs
        if not is_weight and (kinds := dtypes_of(node) & dtypes.inside_only):
            what = "an input" if node.op == "placeholder" else "a result"
            reason = f"{what} of {_joined_names(kinds)}, which {dtypes.name} does not have"
            yield unsupported_node(node, f"{reason}: narrow_floats=True passes its parts in float32")


def _unsupported_arithmetic(program: ExportedProgram, dtypes: Dtypes) -> Iterator[UnsupportedNode]:
    """Yield every operator that computes with dtypes for which only data movement is supported."""
    free = DATA_MOVEMENT | {*CONVERSIONS, *dtypes.computes}
    for node in nodes_of(program) if dtypes.moves else ():
        computes = isinstance(node.target, OpOverload) and node.target.namespace in ("aten", "prims")
        if (
            computes
            and node.target not in free
            and any(isinstance(e, torch.Tensor) for e in tree_leaves(value_of(node)))
        ):
            moved = {dtype for source in node.all_input_nodes for dtype in dtypes_of(source)} & dtypes.moves
            if moved:
                yield unsupported_node(
                    node,
                    f"it computes with tensors of {_joined_names(moved)}, which {dtypes.name} can hold, but for which "
                    "it lacks this operation: use real numbers, as of torch.view_as_real",
                )


def _sparse_inputs(program: ExportedProgram, dtypes: Dtypes) -> Iterator[UnsupportedNode]:
    for node in nodes_of(program) if not dtypes.sparse else ():
        value = value_of(node)
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            reason = f"a tensor of {value.dtype} stored as {value.layout}, and {dtypes.name} has dense tensors only"
            yield unsupported_node(node, f"{reason}: give it as `to_dense()`")


def nodes_of(program: ExportedProgram) -> Iterator[fx.Node]:
    """Yield the nodes of all graphs, but weights that nothing reads: they are not imported, and may be of any kind."""
    inputs = program.graph_signature.user_inputs
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                top = module is program.graph_module
                if not top or node.op != "placeholder" or node.users or node.name in inputs:
                    yield node


def _joined_names(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted(map(str, dtypes)))


def dtypes_of(node: fx.Node) -> set[torch.dtype]:
    if isinstance(value := value_of(node), torch.Tensor):
        return {value.dtype}
    return {leaf.dtype for leaf in tree_leaves(value_of(node)) if isinstance(leaf, torch.Tensor)}


LEGALIZE_DTYPES = FxPass("legalize-dtypes", lambda program, context: legalize(program, context.dtypes))

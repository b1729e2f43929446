"""Constant folding: operators that depend on no input are computed by eager PyTorch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import (
    as_node_dtype,
    mutated_state,
    weight_names,
    with_graph,
    with_rewritten_graphs,
)
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.options import Weights

_MAX_CONSTANT_BYTES = 1 << 16
"""Largest folded constant."""
_MAX_INTERMEDIATE_BYTES = 1 << 24
"""Largest intermediate value, and largest constant of operators on float64, which the output types that fold lack."""
DRAWN = frozenset((aten.rand.default, aten.randn.default, aten.randint.default, aten.randint.low))
"""Sources of random numbers, which become constants too: output types that fold have no random numbers."""
_CONSTANT_KINDS = (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def fold_constants(program: ExportedProgram, state: Collection[str] = ()) -> ExportedProgram:
    """Return ``program`` with the operators that depend on no input replaced by constants.

    Random numbers are drawn, from torch's generator, and are the same whenever the program runs. Parameters count as
    inputs, so that they keep their names, and so do the buffers in ``state``. Operators without tensor operands that
    create floats are not folded, nor are large results. Those that create integers are: the C++ lowerings truncate
    their scalars to 32 bits.
    """
    values = _folded_values(program, state)
    if not values:
        return program
    program = with_rewritten_graphs(program, lambda graph, owner: None)
    found = {node: values[node.name] for node in program.graph.nodes if node.name in values}
    specs = list(program.graph_signature.input_specs)
    first = next((i for i, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT), len(specs))
    # In a program without inputs, the constants come after the other placeholders.
    placeholders = program.graph.find_nodes(op="placeholder")
    before = placeholders[first] if first < len(placeholders) else (placeholders or [program.graph._root])[-1].next
    constants = dict(program.constants)
    for number, node in enumerate(found):
        target = f"folded_{number}_{node.name}"
        constants[target] = found[node]
        with program.graph.inserting_before(before):
            held = program.graph.placeholder(target)
        held.meta |= {key: node.meta[key] for key in ("val", "model_val") if key in node.meta}
        specs.insert(first + number, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(held.name), target))
        node.replace_all_uses_with(held)
    program.graph.eliminate_dead_code()
    signature = ExportGraphSignature(specs, program.graph_signature.output_specs)
    return with_graph(program, program.graph, signature, root=program.graph_module, constants=constants)


def _folded_values(program: ExportedProgram, state: Collection[str]) -> dict[str, torch.Tensor]:
    """Return the values of the nodes to replace by constants, by name: folded nodes with users that are not folded."""
    found = _constants(program, state)
    folded = [node for node in found if node.op == "call_function" and any(user not in found for user in node.users)]
    folded = [node for node in folded if _is_worth_folding(node, found[node])]
    return {node.name: found[node] for node in folded if found[node].numel()}


def _is_worth_folding(node: fx.Node, value: torch.Tensor) -> bool:
    return bool(node.all_input_nodes) or not value.is_floating_point() or node.target in DRAWN


def _constants(program: ExportedProgram, state: Collection[str]) -> dict[fx.Node, torch.Tensor]:
    """Return the value of every node that depends on no input."""
    found: dict[fx.Node, torch.Tensor] = {}
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    for spec in program.graph_signature.input_specs:
        if spec.kind in _CONSTANT_KINDS and spec.target is not None and spec.target not in state:
            held = program.state_dict.get(spec.target, program.constants.get(spec.target))
            if type(held) is torch.Tensor and _is_small(held):
                found[nodes[spec.arg.name]] = as_node_dtype(nodes[spec.arg.name], held)
    with torch.no_grad():
        for node in program.graph.nodes:
            if _is_computable(node) and all(source in found for source in node.all_input_nodes):
                args, kwargs = map_arg((node.args, node.kwargs), found.__getitem__)
                value = node.target(*args, **kwargs)
                if _has_type_of(value, node.meta["val"]):
                    found[node] = value
    for node in reversed(list(found)):
        large = found[node].nbytes > _MAX_CONSTANT_BYTES and not _has_float64(node)
        if large and node.target not in DRAWN and any(user not in found for user in node.users):
            del found[node]
    return found


def _has_float64(node: fx.Node) -> bool:
    return any(value_of(each).dtype == torch.float64 for each in (node, *node.all_input_nodes))


def _is_computable(node: fx.Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    if node.target.namespace not in ("aten", "prims") or node.target._schema.is_mutable:
        return False
    if node.is_impure() and node.target not in DRAWN:
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags and node.target not in DRAWN:
        return False
    value = value_of(node)
    symbolic = any(isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool) for leaf in tree_leaves(node.args))
    return type(value) is not tuple and isinstance(value, torch.Tensor) and not symbolic and _is_small(value)


def _is_small(value: torch.Tensor) -> bool:
    if not all(isinstance(size, int) for size in value.shape):
        return False  # before a symbolic size is compared, which would add a guard
    strided = value.layout is torch.strided and not value.is_quantized
    return strided and value.device.type == "cpu" and math.prod(value.shape) * value.itemsize <= _MAX_INTERMEDIATE_BYTES


def _has_type_of(value: Any, example: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == example.dtype and value.shape == example.shape


def random_nodes(program: ExportedProgram) -> list[fx.Node]:
    """Return the calls in ``program`` whose random numbers constant folding samples."""
    return [node for node in program.graph.nodes if node.target in DRAWN]


def random_functions(programs: Iterable[ExportedProgram]) -> tuple[str, ...]:
    """Return the functions of torch whose random numbers constant folding samples, with their source lines."""
    functions: dict[str, None] = {}
    for node in (node for program in programs for node in random_nodes(program)):
        called = node.meta.get("torch_fn")  # such as ("dropout_1", "function.dropout")
        function = called[1].partition(".")[2] if called else str(node.target)
        line = unsupported_node(node, "").where
        functions[function + (f" (at {line})" if line else "")] = None
    return tuple(functions)


def _fold(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    if not context.target.random and (nodes := random_nodes(program)):
        line = unsupported_node(nodes[0], "").where
        context.remark(
            f"random numbers are drawn here, and are the same in each call: {len(nodes)} tensors"
            + (f", the first at {line}" if line else "")
        )
    state = set().union(*map(mutated_state, context.programs.values()))
    if context.options.importing.weights is not Weights.INLINE:
        state |= weight_names(program)
    return fold_constants(program, state)


FOLD_CONSTANTS = FxPass("fold-constants", _fold, lambda context: context.target.folds_constants)

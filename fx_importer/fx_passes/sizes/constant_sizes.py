"""Folding of unbacked sizes that depend only on constants, computed by eager PyTorch before the decompositions.

torch.export creates an unbacked symbol for a data-dependent size (``item``, ``nonzero``), also if the data are
constants of the program: the maximum of ``arange(n)``, or the number of true elements of a constant mask.
Buffers that no function writes to are constants where the module holds their values (``Weights.INLINE``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sympy
import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map_only

from fx_importer.fx_graph.aliasing import alias_sets, aliases_of_mutated, eliminate_dead_nodes, mutated_arguments
from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import as_node_dtype, mutated_state, with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.fx_passes.node_rewriting import arguments_of
from fx_importer.options import Weights

SizeValues = dict[sympy.Symbol, sympy.Integer]

_MAX_BYTES = 1 << 24
"""Largest value that is computed."""

_READ_NO_VALUES = frozenset(
    (
        *(aten.new_zeros.default, aten.new_ones.default, aten.new_full.default),
        *(aten.zeros_like.default, aten.ones_like.default, aten.full_like.default),
    )
)
"""Operators that read the sizes and the dtype of their tensor, and not its values."""

_REPETITIONS = (aten.repeat_interleave.Tensor, aten.repeat_interleave.self_Tensor)


def fold_constant_sizes(program: ExportedProgram, buffers: Collection[str] = ()) -> ExportedProgram:
    """Return ``program`` with unbacked sizes that depend only on constants replaced by integers.

    Parameters may change, and do not count as constants; of the buffers, those that ``buffers`` names do. The program
    need not be functional.
    """
    repeats = any(node.target in _REPETITIONS for node in program.graph.nodes)
    if not repeats and not any(free_unbacked_symbols(value_of(x)) for x in program.graph.nodes if _has_symbols(x)):
        return program
    tensors = {
        spec.arg.name: tensor
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR or (spec.kind is InputKind.BUFFER and spec.target in buffers)
        if (tensor := program.constants.get(spec.target, program.state_dict.get(spec.target))) is not None  # type: ignore[arg-type]
    }
    sizes_of_symbols: SizeValues = {}

    def fold(graph: fx.Graph, owner: fx.GraphModule) -> None:
        if owner is program.graph_module:
            _fold(graph, tensors, sizes_of_symbols)
        elif sizes_of_symbols:
            for node in graph.nodes:
                node.meta["val"] = _with_sizes(value_of(node), sizes_of_symbols)

    folded = with_rewritten_graphs(program, fold)
    return folded if sizes_of_symbols or repeats else program


def _has_symbols(node: fx.Node) -> bool:
    leaves = [value] if isinstance(value := value_of(node), Tensor) else tree_leaves(value)
    return any(
        isinstance(leaf, SymInt) or (isinstance(leaf, Tensor) and any(isinstance(size, SymInt) for size in leaf.shape))
        for leaf in leaves
    )


def _fold(graph: fx.Graph, tensors: Mapping[str, Any], sizes_of_symbols: SizeValues) -> None:
    """Evaluate the nodes that depend only on constants, in order, and inline the sizes that they determine."""
    aliases = alias_sets(graph)
    known: dict[fx.Node, Any] = {
        node: as_node_dtype(node, tensors[node.name]).clone()  # in-place operators are evaluated too
        for node in graph.find_nodes(op="placeholder")
        if type(tensor := tensors.get(node.name)) is Tensor and tensor.device.type == "cpu" and _is_small(tensor)
    }
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        node.meta["val"] = _with_sizes(value_of(node), sizes_of_symbols)
        if isinstance(value_of(node), int):
            known[node] = value_of(node)
            continue
        _masked_select_to_index(node, known)
        _count_repetitions(node, known, sizes_of_symbols)
        if _reads_at_constant_masks(node, known):
            selected = emit(node, node.target, node.args[0], _integer_indices(node, known))
            _bind_symbols(value_of(node), value_of(selected), sizes_of_symbols)
            node.replace_all_uses_with(selected)
        elif _is_computable(node, known):
            args, kwargs = map_arg((node.args, node.kwargs), lambda operand: _operand(operand, known))
            with torch.no_grad():
                known[node] = node.target(*args, **kwargs)
            _bind_symbols(value_of(node), known[node], sizes_of_symbols)
            node.meta["val"] = _with_sizes(value_of(node), sizes_of_symbols)
            _find_static_number(node, known)
        else:
            for other in (other for written in mutated_arguments(node) for other in aliases.get(written, ())):
                known.pop(other, None)
    for node, value in known.items():
        if isinstance(value, int | float | bool):
            _inline_number(node, value)
    eliminate_dead_nodes(graph)


def _find_static_number(node: fx.Node, known: dict[fx.Node, Any]) -> None:
    """Rewrite a search for the true elements of a constant, whose number is known, as one of static size."""
    if node.target in (aten.nonzero.default, aten.argwhere.default):
        node.target, node.kwargs = aten.nonzero_static.default, {"size": len(known[node])}
    elif node.target in (aten.where.default, aten.nonzero_numpy.default) and len(node.args) == 1:
        mask: Any = node.args[0]
        if value_of(mask).dim():
            listed = emit(node, aten.nonzero_static.default, mask, size=len(known[node][0]))
            columns = emit(node, aten.unbind.int, listed, 1)
            known[listed], known[columns] = torch.stack(list(known[node]), 1), known[node]
            node.replace_all_uses_with(columns)


def _count_repetitions(node: fx.Node, known: Mapping[fx.Node, Any], sizes_of_symbols: SizeValues) -> None:
    """Give ``repeat_interleave`` by a constant the number of its results."""
    if node.target not in _REPETITIONS:
        return
    arguments = arguments_of(node)
    repeats, dim = arguments["repeats"], arguments.get("dim")
    if repeats not in known or not value_of(repeats).dim():
        return
    total = int(known[repeats].sum())
    if "self" in arguments and value_of(repeats).shape[0] == 1:  # each element as often
        x = value_of(arguments["self"])
        size = x.numel() if dim is None else x.shape[dim]
        if not isinstance(size, int):
            return
        total *= size
    node.kwargs = {**node.kwargs, "output_size": total}
    _bind_symbols(value_of(node).shape[dim or 0], total, sizes_of_symbols)
    node.meta["val"] = _with_sizes(value_of(node), sizes_of_symbols)


def _operand(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    """Return the value of ``node``, or a tensor like it for an operator that does not read the values."""
    if node in known:
        return known[node]
    return torch.empty(value_of(node).shape, dtype=value_of(node).dtype)


def _is_computable(node: fx.Node, known: Mapping[fx.Node, Any]) -> bool:
    sources = [source for source in node.all_input_nodes if source not in known]
    if sources and (node.target not in _READ_NO_VALUES or sources != [node.args[0]] or not _is_plain(sources[0])):
        return False
    if not isinstance(node.target, OpOverload):  # sizes are computed with Python's operators
        return getattr(node.target, "__module__", "") in ("_operator", "math", "torch")
    if node.target.namespace not in ("aten", "prims") or torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    if node.is_impure() and not node.target._schema.is_mutable:
        return False
    results = tree_leaves(value_of(node))
    return all(
        not isinstance(result, Tensor)
        or (result.layout is torch.strided and result.device.type == "cpu" and _is_small(result))
        for result in results
    )


def _is_plain(node: fx.Node) -> bool:
    value = value_of(node)
    return (
        value.layout is torch.strided and not any(isinstance(size, SymInt) for size in value.shape) and _is_small(value)
    )


def _is_small(value: Tensor) -> bool:
    sizes = [size for size in value.shape if not isinstance(size, SymInt)]
    return sympy.prod(sizes) * value.itemsize <= _MAX_BYTES


def _masked_select_to_index(node: fx.Node, known: dict[fx.Node, Any]) -> None:
    """Rewrite ``masked_select`` by a constant mask as ``index``, with tensor and mask expanded to one static shape."""
    if node.target is not aten.masked_select.default or node.args[0] in known or node.args[1] not in known:
        return
    x, mask = node.args
    assert isinstance(x, fx.Node)
    assert isinstance(mask, fx.Node)
    sizes = value_of(x).shape
    if any(isinstance(size, SymInt) for size in sizes) or not sizes:
        return
    shape = torch.broadcast_shapes(sizes, known[mask].shape)
    wide = mask if known[mask].shape == shape else emit(node, aten.expand.default, mask, list(shape))
    known[wide] = known[mask].expand(shape)
    x = x if sizes == shape else emit(node, aten.expand.default, x, list(shape))
    node.target, node.args = aten.index.Tensor, (x, [wide])


def _reads_at_constant_masks(node: fx.Node, known: Mapping[fx.Node, Any]) -> bool:
    """Return whether ``node`` reads at masks, all of them constants of rank 1 or more."""
    if node.target is not aten.index.Tensor or node.args[0] in known:
        return False
    masks = [index for index in node.args[1] if index is not None and value_of(index).dtype == torch.bool]  # type: ignore[union-attr]
    return bool(masks) and all(mask in known and value_of(mask).dim() for mask in masks)


def _integer_indices(node: fx.Node, known: dict[fx.Node, Any]) -> list[fx.Node | None]:
    """Return the indices of ``node`` with constant masks as integer indices of static size, one for each axis."""
    indices: list[fx.Node | None] = []
    for index in node.args[1]:  # type: ignore[union-attr]
        if not isinstance(index, fx.Node) or value_of(index).dtype != torch.bool:
            indices.append(index)
            continue
        positions = emit(node, aten.nonzero_static.default, index, size=int(known[index].sum()))
        indices += [emit(node, aten.select.int, positions, 1, column) for column in range(known[index].dim())]
    return indices


def _bind_symbols(symbolic: Any, actual: Any, sizes_of_symbols: SizeValues) -> None:
    """Add to ``sizes_of_symbols`` the sizes of the symbols of ``symbolic`` in its actual value."""
    for example, value in zip(tree_leaves(symbolic), tree_leaves(actual), strict=True):
        sizes = zip(example.shape, value.shape, strict=True) if isinstance(example, Tensor) else [(example, value)]
        for size, number in sizes:
            expression = size.node.expr if isinstance(size, SymInt) else None
            if isinstance(expression, sympy.Symbol) and isinstance(number, int):
                sizes_of_symbols[expression] = sympy.Integer(number)


def _with_sizes(example: Any, sizes_of_symbols: SizeValues) -> Any:
    """Return the example value of a node with ``sizes_of_symbols`` substituted."""
    if not sizes_of_symbols:
        return example

    def size(symbol: int | SymInt) -> int | SymInt:
        if not isinstance(symbol, SymInt):
            return symbol
        number = symbol.node.expr.subs(sizes_of_symbols)
        if number.is_number:
            return int(number)
        return symbol if number == symbol.node.expr else symbol.node.shape_env.create_symintnode(number, hint=None)

    def tensor(example: FakeTensor) -> Tensor:
        if not any(isinstance(size, SymInt) for size in (*example.shape, *example.stride())):
            return example
        with example.fake_mode:
            return torch.empty_strided(
                [size(dim) for dim in example.shape],
                [size(stride) for stride in example.stride()],
                dtype=example.dtype,
                device=example.device,
            )

    return tree_map_only(SymInt, size, tree_map_only(FakeTensor, tensor, example))


def _inline_number(node: fx.Node, number: float) -> None:
    """Replace uses of ``node`` by ``number``, except among the program's results, which have names."""

    def replaced(value: fx.Node) -> Any:
        return number if value is node else value

    for user in list(node.users):
        if user.op != "output":
            user.args, user.kwargs = map_arg(user.args, replaced), map_arg(user.kwargs, replaced)


def _constant_buffers(context: FxContext) -> set[str]:
    """Return the names of the buffers whose values the module holds, and that none of its functions writes to.

    Raw output keeps masks as the exported program has them.
    """
    if context.options.importing.weights is not Weights.INLINE or not context.target.library_operators:
        return set()
    buffers: set[str] = set()
    written: set[str] = set()
    for program in context.programs.values():
        specs = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target}
        buffers |= {*program.graph_signature.buffers}
        mutated = {node.name for node in aliases_of_mutated(program.graph)}
        written |= mutated_state(program) | {target for name, target in specs.items() if name in mutated}
    return buffers - written


FOLD_CONSTANT_SIZES = FxPass(
    "fold-constant-sizes", lambda program, context: fold_constant_sizes(program, _constant_buffers(context))
)

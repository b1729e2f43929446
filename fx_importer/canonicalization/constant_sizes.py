"""Sizes that depend on values which depend on no input: numbers, computed by eager PyTorch before anything else.

Export makes a symbol of the size that a value decides (``item``, ``nonzero``), also where that value is a constant of
the program: the greatest of ``arange(n)``, or how many elements of a fixed mask are true.
"""

from __future__ import annotations

from collections.abc import Mapping
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

from fx_importer.canonicalization.node_rewriting import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import as_node_dtype, with_rewritten_graphs
from fx_importer.fx_graph.regions import inline_regions

Numbers = dict[sympy.Symbol, sympy.Integer]

_LARGEST = 1 << 24
"""In bytes, of what is computed."""


def settle_sizes(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with a number for each size that depends on no input.

    What it holds counts where it is a constant: parameters and buffers may change. The program need not be functional.
    """
    if not any(free_unbacked_symbols(value_of(node)) for node in program.graph.nodes if _has_symbols(node)):
        return program
    held = {
        spec.arg.name: program.constants[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR and spec.target in program.constants
    }
    numbers: Numbers = {}

    def settle(graph: fx.Graph, owner: fx.GraphModule) -> None:
        if owner is program.graph_module:
            inline_regions(graph, owner)
            _settle(graph, held, numbers)
        elif numbers:
            for node in graph.nodes:
                node.meta["val"] = _settled(value_of(node), numbers)

    settled = with_rewritten_graphs(program, settle)
    return settled if numbers else program


def _has_symbols(node: fx.Node) -> bool:
    leaves = [value] if isinstance(value := value_of(node), Tensor) else tree_leaves(value)
    return any(
        isinstance(each, SymInt) or (isinstance(each, Tensor) and any(isinstance(size, SymInt) for size in each.shape))
        for each in leaves
    )


def _settle(graph: fx.Graph, held: Mapping[str, Any], numbers: Numbers) -> None:
    """Compute what depends on no input, in order, and write the sizes that come of it."""
    known: dict[fx.Node, Any] = {
        node: as_node_dtype(node, held[node.name]).clone()  # operators in place run too
        for node in graph.find_nodes(op="placeholder")
        if type(held.get(node.name)) is Tensor
    }
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        node.meta["val"] = _settled(value_of(node), numbers)
        if isinstance(value_of(node), int):
            known[node] = value_of(node)
            continue
        _respell_fixed_selection(node, known)
        if (axis := _axis_of_fixed_mask(node, known)) is not None:
            selected = emit(node, node.target, node.args[0], _places(node, axis, known))
            _learn(value_of(node), value_of(selected), numbers)
            node.replace_all_uses_with(selected)
        elif _is_computable(node, known):
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            with torch.no_grad():
                known[node] = node.target(*args, **kwargs)
            _learn(value_of(node), known[node], numbers)
            if node.target is aten.nonzero.default:
                node.target, node.kwargs = aten.nonzero_static.default, {"size": len(known[node])}
            node.meta["val"] = _settled(value_of(node), numbers)
        elif isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            _forget(node, known)
    for node, value in known.items():
        if isinstance(value, int | float | bool):
            _write(node, value)
    graph.eliminate_dead_code()


def _is_computable(node: fx.Node, known: Mapping[fx.Node, Any]) -> bool:
    if not all(source in known for source in node.all_input_nodes):
        return False
    if not isinstance(node.target, OpOverload):  # sizes are computed with Python's own operators
        return getattr(node.target, "__module__", "") in ("_operator", "math", "torch")
    if node.target.namespace not in ("aten", "prims") or torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    if node.is_impure() and not node.target._schema.is_mutable:
        return False
    results = tree_leaves(value_of(node))
    return all(
        not isinstance(each, Tensor) or (each.layout is torch.strided and each.device.type == "cpu" and _is_small(each))
        for each in results
    )


def _is_small(value: Tensor) -> bool:
    sizes = [size for size in value.shape if not isinstance(size, SymInt)]
    return sympy.prod(sizes) * value.itemsize <= _LARGEST


def _respell_fixed_selection(node: fx.Node, known: dict[fx.Node, Any]) -> None:
    """Have a ``masked_select`` by a known mask read as indexing by it, of tensors that are of its shape."""
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


def _axis_of_fixed_mask(node: fx.Node, known: Mapping[fx.Node, Any]) -> int | None:
    """Return the axis at which ``node`` selects what a known mask is true for, if it does."""
    if node.target is not aten.index.Tensor or node.args[0] in known:
        return None
    indices = node.args[1]
    assert isinstance(indices, list | tuple)
    given = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    if len(given) != 1 or given[0][1] not in known or value_of(given[0][1]).dtype != torch.bool:
        return None
    return given[0][0] if value_of(given[0][1]).dim() else None


def _places(node: fx.Node, axis: int, known: dict[fx.Node, Any]) -> list[fx.Node | None]:
    """Return the indices that say the same as the mask at ``axis``: of a size that is known."""
    mask = node.args[1][axis]  # type: ignore[index]
    assert isinstance(mask, fx.Node)
    found = emit(node, aten.nonzero_static.default, mask, size=int(known[mask].sum()))
    columns = [emit(node, aten.select.int, found, 1, column) for column in range(known[mask].dim())]
    return [*[None] * axis, *columns]


def _forget(node: fx.Node, known: dict[fx.Node, Any]) -> None:
    """Leave out of ``known`` what an operator in place writes to, and all that shares its memory."""
    arguments = zip(node.target._schema.arguments, node.args, strict=False)  # type: ignore[union-attr]
    to = [each for argument, each in arguments if argument.alias_info is not None and argument.alias_info.is_write]
    written = {known[each].untyped_storage().data_ptr() for each in to if isinstance(each, fx.Node) and each in known}
    for other, value in list(known.items()):
        tensors = [each for each in tree_leaves(value) if isinstance(each, Tensor)]
        if any(each.untyped_storage().data_ptr() in written for each in tensors):
            del known[other]


def _learn(symbolic: Any, actual: Any, numbers: Numbers) -> None:
    """Add to ``numbers`` what a value says of the symbols in its type."""
    for example, value in zip(tree_leaves(symbolic), tree_leaves(actual), strict=True):
        sizes = zip(example.shape, value.shape, strict=True) if isinstance(example, Tensor) else [(example, value)]
        for size, number in sizes:
            expression = size.node.expr if isinstance(size, SymInt) else None
            if isinstance(expression, sympy.Symbol) and isinstance(number, int):
                numbers[expression] = sympy.Integer(number)


def _settled(example: Any, numbers: Numbers) -> Any:
    """Return the example value of a node with ``numbers`` in the places of their symbols."""
    if not numbers:
        return example

    def size(symbol: int | SymInt) -> int | SymInt:
        if not isinstance(symbol, SymInt):
            return symbol
        found = symbol.node.expr.subs(numbers)
        if found.is_number:
            return int(found)
        return symbol if found == symbol.node.expr else symbol.node.shape_env.create_symintnode(found, hint=None)

    def tensor(example: FakeTensor) -> Tensor:
        if not any(isinstance(each, SymInt) for each in (*example.shape, *example.stride())):
            return example
        with example.fake_mode:
            return torch.empty_strided(
                [size(each) for each in example.shape],
                [size(each) for each in example.stride()],
                dtype=example.dtype,
                device=example.device,
            )

    return tree_map_only(SymInt, size, tree_map_only(FakeTensor, tensor, example))


def _write(node: fx.Node, number: float) -> None:
    """Put ``number`` where ``node`` is used, but for the program's results, which have names."""

    def replaced(each: fx.Node) -> Any:
        return number if each is node else each

    for user in list(node.users):
        if user.op != "output":
            user.args, user.kwargs = map_arg(user.args, replaced), map_arg(user.kwargs, replaced)

"""Gradients of max pools, routed to the positions of the maxima.

The indices of a max pool lie in its windows, so the gradient is a sum over the elements of a window, without a scatter.
Indices from elsewhere may be any positions, and are scattered to.
"""

from __future__ import annotations

import math
import operator as python_operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.interior_padding import per_axis, place_strided
from fx_importer.decompositions.nn.pooling import sliding_windows
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs


def _max_pool(operator: OpOverload, axes: int) -> Decomposition:
    @decomposes(operator)
    def max_pool_backward(
        grad: Tensor,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil: bool,
        indices: Tensor,
    ) -> Any:
        """Return the gradient: along each axis, the k-th elements of all windows are placed with stride, and added.

        The indices lie in the windows: `scatter_foreign_indices` has replaced the operators with others.
        """
        if not is_static(grad, x):
            return _scattered(grad, x, indices, axes)
        kernel, padding, dilation = (per_axis(setting, axes) for setting in (kernel, padding, dilation))
        stride = per_axis(stride, axes) if len(stride) else kernel
        sizes, outputs = list(x.shape[-axes:]), list(grad.shape[-axes:])
        windows = zip(sizes, kernel, stride, padding, dilation, strict=True)
        if any(sliding_windows(*settings, ceil).has_empty for settings in windows):
            return _scattered(grad, x, indices, axes)  # eager's index of an empty window lies outside of it
        batch = math.prod(x.shape[:-axes])
        flat = torch.zeros((), dtype=torch.int32)
        for k in range(axes):  # [k1, … kn, o1, … on]: the flat index of each element of each window
            inside = (torch.arange(kernel[k], dtype=torch.int32) * dilation[k]).reshape(-1, *[1] * (2 * axes - 1 - k))
            window = (torch.arange(outputs[k], dtype=torch.int32) * stride[k]).reshape(-1, *[1] * (axes - 1 - k))
            flat = flat * sizes[k] + (inside + window - padding[k])
        flat = flat.reshape(1, math.prod(kernel), math.prod(outputs))
        mine = indices.to(torch.int32).reshape(batch, 1, -1) == flat
        share = torch.where(mine, grad.reshape(batch, 1, -1), torch.zeros((), dtype=grad.dtype))
        done = 1
        for k in reversed(range(axes)):
            outer, before = math.prod(kernel[:k]), math.prod(outputs[:k])
            share = share.reshape(batch * outer, kernel[k], before, outputs[k], done)
            parts = [
                place_strided(share.select(1, i), 2, i * dilation[k] - padding[k], stride[k], sizes[k])
                for i in range(kernel[k])
            ]
            share = sum(parts[1:], parts[0])
            done *= sizes[k]
        return share.reshape(x.shape)

    return max_pool_backward


def _scattered(grad: Tensor, x: Tensor, indices: Tensor, axes: int) -> Tensor:
    """Return zeros in the shape of ``x`` with ``grad`` added at ``indices``, which are flat over the last ``axes``."""
    rows = [tensor.flatten(-axes).flatten(0, -2) for tensor in (x, indices, grad)]
    return torch.scatter_add(torch.zeros_like(rows[0]), 1, rows[1], rows[2]).reshape(x.shape)


def _scatter_by_indices(operator: OpOverload, axes: int) -> Decomposition:
    @decomposes(operator)
    def backward(grad: Tensor, x: Tensor, *arguments: Any) -> Any:
        """Return the gradient by a scatter, for irregular windows. The last argument is the indices."""
        return _scattered(grad, x, arguments[-1], axes)

    return backward


_POOLS = {
    aten.max_pool2d_with_indices_backward.default: (2, aten.max_pool2d_with_indices.default),
    aten.max_pool3d_with_indices_backward.default: (3, aten.max_pool3d_with_indices.default),
}
"""The number of axes, and the operator whose second result the indices are."""
_SCATTERS = {2: aten.adaptive_max_pool2d_backward.default, 3: aten.adaptive_max_pool3d_backward.default}
"""The gradients that take indices and no windows, by the number of axes."""

MAX_POOL_BACKWARD = (
    *(_max_pool(operator, axes) for operator, (axes, _) in _POOLS.items()),
    _scatter_by_indices(aten.adaptive_max_pool2d_backward.default, 2),
    _scatter_by_indices(aten.adaptive_max_pool3d_backward.default, 3),
    _scatter_by_indices(aten.fractional_max_pool2d_backward.default, 2),
    _scatter_by_indices(aten.fractional_max_pool3d_backward.default, 3),
)
_WINDOWED = frozenset(decomposition.rule for decomposition in MAX_POOL_BACKWARD[:2])


def scatter_foreign_indices(program: ExportedProgram, table: Mapping[Any, Any]) -> ExportedProgram:
    """Return ``program`` with gradients of max pools replaced by scatters if the pool did not compute the indices.

    Gradients that ``table`` keeps, or has other rules for, stay.
    """

    def is_foreign(node: fx.Node) -> bool:
        if node.target not in _POOLS or table.get(node.target) not in _WINDOWED:
            return False
        windowed = _windows(node, _POOLS[node.target][0]) is not None  # the rule scatters where sizes are dynamic
        return windowed and not _is_of_same_pool(node)

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        for node in filter(is_foreign, graph.nodes):
            arguments = _arguments(node)
            node.target = _SCATTERS[_POOLS[node.target][0]]
            node.args, node.kwargs = (arguments["grad_output"], arguments["self"], arguments["indices"]), {}

    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    any_foreign = any(is_foreign(node) for graph in graphs for node in graph.nodes)
    return with_rewritten_graphs(program, rewrite) if any_foreign else program


def _is_of_same_pool(node: fx.Node) -> bool:
    """Return whether a max pool with the same sizes and windows computed the indices of a gradient."""
    axes, forward = _POOLS[node.target]
    indices = _arguments(node)["indices"]
    while indices.target in _COPIES:
        indices = indices.args[0]
    if indices.target is not python_operator.getitem or indices.args[1] != 1 or indices.args[0].target is not forward:
        return False
    backward, pool = (_windows(call, axes) for call in (node, indices.args[0]))
    return backward is not None and backward == pool


_COPIES = frozenset((aten.detach.default, aten.alias.default, aten.clone.default))


def _arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call by name, with defaults."""
    formals = node.target._schema.arguments  # type: ignore[union-attr]
    arguments = dict(zip((formal.name for formal in formals), node.args, strict=False)) | dict(node.kwargs)
    return {formal.name: arguments.get(formal.name, formal.default_value) for formal in formals}


def _windows(node: fx.Node, axes: int) -> list[Any] | None:
    """Return the sizes and windows of a pool or its gradient; None if they are not static."""
    arguments = _arguments(node)
    sizes = list(arguments["self"].meta["val"].shape[-axes:])
    lists = [arguments[name] for name in ("kernel_size", "stride", "padding", "dilation")]
    lists[1] = lists[1] or lists[0]
    numbers = [*sizes, *(number for numbers in lists for number in per_axis(numbers, axes)), arguments["ceil_mode"]]
    return numbers if all(isinstance(number, int) for number in numbers) else None

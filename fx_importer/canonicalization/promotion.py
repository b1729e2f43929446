"""Conversion of operands to one dtype, where the C++ lowerings to linalg do not convert them.

Their conversion to 8-bit integers ends the process (`convertScalarToDtype` returns null), and some lowerings convert no
operand or only one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from fx_importer.canonicalization.node_rewriting import emit, value_of
from fx_importer.fx_graph.operators import aten, prims

_ALWAYS = frozenset(
    (
        *(aten.clamp.default, aten.clamp.Tensor, aten.clamp_min.default, aten.clamp_max.default),
        *(aten.clamp_min.Tensor, aten.clamp_max.Tensor),
        *(aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor),
    )
)
"""Operators whose lowerings compute in the dtype of one operand."""
_TO_EIGHT_BITS = frozenset(
    (
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.rsub.Tensor, aten.maximum.default),
        *(aten.minimum.default, aten.bitwise_and.Tensor, aten.bitwise_or.Tensor, aten.bitwise_xor.Tensor),
        *(aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor, aten.where.self, aten.remainder.Tensor),
        *(aten.fmod.Tensor, aten.floor_divide.default, aten.div.Tensor, aten.div.Tensor_mode, aten.pow.Tensor_Tensor),
        *(aten.addcmul.default, aten.addcdiv.default, aten.atan2.default),
    )
)
"""Operators that convert their operands to the dtype of the result, and may not do so to 8 bits."""
_EIGHT_BITS = (torch.int8, torch.uint8)


def promote(graph: fx.Graph, owner: fx.GraphModule) -> None:
    """Convert the operands of the operators above to the dtype that PyTorch computes in."""
    del owner
    for node in graph.nodes:
        if node.target not in _ALWAYS and node.target not in _TO_EIGHT_BITS:
            continue
        start = 1 if node.target is aten.where.self else 0
        values = [value_of(each) for each in (*node.args[start:], *_bounds(node))]
        operands = [each for each in values if isinstance(each, Tensor | int | float) and not _is_complex(each)]
        kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
        _, dtype = elementwise_dtypes(*operands, type_promotion_kind=kind)
        if node.target in _ALWAYS or dtype in _EIGHT_BITS:
            converted = [_converted(node, each, dtype) for each in node.args[start:]]
            node.args = (*node.args[:start], *converted)
            node.kwargs = {key: _converted(node, each, dtype) for key, each in node.kwargs.items()}


def _bounds(node: fx.Node) -> list[Any]:
    return [each for key, each in node.kwargs.items() if key in ("min", "max")]


def _is_complex(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def _converted(node: fx.Node, argument: Any, dtype: torch.dtype) -> Any:
    value = value_of(argument)
    if not isinstance(argument, fx.Node) or not isinstance(value, Tensor) or value.dtype == dtype or value.is_complex():
        return argument
    return emit(node, prims.convert_element_type.default, argument, dtype)

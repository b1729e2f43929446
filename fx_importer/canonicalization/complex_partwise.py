"""Which operators are done to complex tensors by doing them to both parts."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from fx_importer.canonicalization.signless_types import FILLS, MOVES
from fx_importer.fx_graph.operators import aten

MOVED = (MOVES - {aten.as_strided.default, aten.view.dtype}) | {
    *(aten.resolve_conj.default, aten.resolve_neg.default, aten.contiguous.default, aten.lift_fresh.default),
    *(aten.scalar_tensor.default, aten.ones.default, aten.zeros.default, aten.tril.default, aten.triu.default),
    *(aten.index_copy.default, aten.masked_scatter.default, aten.neg.default, operator.getitem),
}
"""What is done to a complex tensor by doing it to both parts. (Strides are other ones, and so are the bits.)"""
NUMBERS = {**FILLS, aten.scalar_tensor.default: 0}
"""Where the number is that becomes an element: each part has its own."""
IMAGINARY: Mapping[Any, Any] = {aten.ones_like.default: aten.zeros_like.default, aten.ones.default: aten.zeros.default}
"""What makes the imaginary part, where that is another operator."""
MIXED: Mapping[Any, tuple[int, ...]] = {
    aten.cat.default: (0,),
    aten.stack.default: (0,),
    aten.where.self: (1, 2),
    aten.masked_fill.Tensor: (2,),
}
"""Which arguments may be real where the result is complex: their imaginary part is zero."""
OF_SHAPE = frozenset(
    (
        *(aten.sym_size.int, aten.sym_numel.default, aten.zeros_like.default, aten.ones_like.default),
        *(aten.full_like.default, aten.empty_like.default),
    )
)
"""What is the same for a part as for the whole, where the result is not complex."""

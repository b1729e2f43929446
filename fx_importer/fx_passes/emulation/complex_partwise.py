"""Tables of the operators that apply to the real and the imaginary part of a complex tensor separately."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.emulation.signless_types import DATA_MOVEMENT, FILLS

PARTWISE = (DATA_MOVEMENT - {aten.as_strided.default, aten.view.dtype}) | {
    *(aten.resolve_conj.default, aten.resolve_neg.default, aten.contiguous.default, aten.lift_fresh.default),
    *(aten.scalar_tensor.default, aten.ones.default, aten.zeros.default, aten.tril.default, aten.triu.default),
    *(aten.index_copy.default, aten.masked_scatter.default, aten.neg.default, operator.getitem),
}
"""Operators on complex tensors that apply to both parts. Excluded are those that depend on strides or on bits."""
SCALAR_ARGUMENT = {**FILLS, aten.scalar_tensor.default: 0}
"""Position of the scalar argument that becomes an element; each part takes its own part of it."""
IMAGINARY_OPERATOR: Mapping[Any, Any] = {
    aten.ones_like.default: aten.zeros_like.default,
    aten.ones.default: aten.zeros.default,
}
"""Operator for the imaginary part where it differs from that of the real part."""
REAL_ARGUMENTS: Mapping[Any, tuple[int, ...]] = {
    aten.cat.default: (0,),
    aten.stack.default: (0,),
    aten.where.self: (1, 2),
    aten.masked_fill.Tensor: (2,),
}
"""Positions of arguments that may be real with a complex result; their imaginary part is zero."""
SHAPE_ONLY = frozenset(
    (
        *(aten.sym_size.int, aten.sym_numel.default, aten.zeros_like.default, aten.ones_like.default),
        *(aten.full_like.default, aten.empty_like.default),
    )
)
"""Operators that only read the shape or fill it, with a real result: the real part stands for the whole tensor."""

"""Rules of operators of complex tensors, collected by the capabilities of targets.

The FX pass `fx_passes/emulation/complex_pairs.py` represents the complex values that these rules split and join as
pairs of real nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from fx_importer.decompositions.emulation.complex.arithmetic import (
    absolute,
    add,
    complex_matmul,
    conjugate,
    div,
    ldexp,
    mul,
    mul_of_two,
    neg,
    power,
    power_of_tensors,
    reciprocal,
    rsub,
    sub,
)
from fx_importer.decompositions.emulation.complex.comparisons import COMPARISONS, eq, ne
from fx_importer.decompositions.emulation.complex.functions import COMPLEX_FUNCTIONS, exp
from fx_importer.decompositions.emulation.complex.parts import convert, copy, eye
from fx_importer.decompositions.emulation.complex.reductions import (
    COMPLEX_LOGSUMEXP,
    NORMS,
    PRODUCTS,
    mean_all,
    mean_dim,
    sum_all,
    sum_dim,
)
from fx_importer.decompositions.engine.table import Decomposition
from fx_importer.fx_graph.operators import aten


def _on_both_parts(operator: OpOverload) -> Decomposition:
    """Return the rule that computes ``operator`` of the real parts of its arguments and of the imaginary ones."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in tree_leaves((args, kwargs))):
            return NotImplemented

        def take(part: int) -> Any:
            def of(value: Any) -> Any:
                if isinstance(value, Tensor) and value.is_complex():
                    return torch.view_as_real(value).select(-1, part)
                if isinstance(value, torch.dtype):
                    return value.to_real()
                return (value.real, value.imag)[part] if isinstance(value, complex) else value

            return operator(*tree_map(of, args), **tree_map(of, kwargs))

        return torch.complex(take(0), take(1))

    return Decomposition((operator,), rule)


_LINEAR = (
    *(aten.cumsum.default, aten.scatter_add.default, aten.index_add.default, aten.index_put.default, aten.roll.default),
    *(aten.scatter.src, aten.index_copy.default, aten.masked_scatter.default, aten.put.default, aten.take.default),
    *(aten.index.Tensor, aten.gather.default, aten.index_select.default, aten.flip.default, aten.embedding.default),
    *(
        aten.nan_to_num.default,
        aten.trace.default,
        aten.col2im.default,
        aten.im2col.default,
        aten.masked_select.default,
    ),
)
"""Operators that treat both parts alike."""


BASIC_ARITHMETIC = (
    *(add, sub, rsub, mul, div, reciprocal, absolute, conjugate, exp, convert, eq, ne),
    *(sum_dim, sum_all, mean_dim, mean_all),
    neg,
)
"""Rules for a target that multiplies complex numbers."""


BASIC_ARITHMETIC_IN_PARTS = (*(rule for rule in BASIC_ARITHMETIC if rule is not mul), mul_of_two)
"""Rules for a target without products of complex numbers that can make them of two parts."""


COMPLEX_OPERATORS = (
    *COMPLEX_FUNCTIONS,
    *COMPLEX_LOGSUMEXP,
    *(power, power_of_tensors, ldexp),
    *COMPARISONS,
    *NORMS,
    *PRODUCTS,
    *(eye, copy),
    *map(_on_both_parts, _LINEAR),
)
"""Rules for a target that has sums and products of complex numbers."""


ALL_COMPLEX_OPERATORS = (*BASIC_ARITHMETIC_IN_PARTS, complex_matmul, *COMPLEX_OPERATORS)
"""Rules for a target without complex numbers."""

"""Decomposition of einsum of two operands into one matmul, whose operands and result are transposed where needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.einsum.default)
def einsum(equation: str, tensors: Sequence[Tensor], *, path: Any = None) -> Tensor:
    """Return the contraction as one ``mm``, or one ``bmm`` where labels of both operands stay.

    Declines (PyTorch's own decomposition follows) unless there are two floating-point operands without repeated labels,
    both have the labels that are summed over, and sizes of equal labels are known to agree.
    """
    labels = labels_of(equation, [x.dim() for x in tensors])
    if labels is None or len(tensors) != 2 or not all(x.is_floating_point() for x in tensors):
        return NotImplemented
    (left, right), result = labels
    a, b = tensors
    shared, rest = [x for x in left if x in right], [x for x in left + right if (x in left) != (x in right)]
    summed = "".join(x for x in shared if x not in result)
    agree = all(statically_known_true(a.shape[left.index(x)] == b.shape[right.index(x)]) for x in shared)
    if not summed or not agree or any(x not in result for x in rest):
        return NotImplemented
    batch = "".join(x for x in result if x in shared)
    rows, columns = ("".join(x for x in result if x in rest and x in labels) for labels in (left, right))
    if rows and columns and result.index(columns[0]) < result.index(rows[0]):
        (a, left, rows), (b, right, columns) = (b, right, columns), (a, left, rows)
    first, second = _matrices(a, left, batch, rows, summed), _matrices(b, right, batch, summed, columns)
    product = torch.bmm(first, second) if batch else torch.mm(first, second)
    sizes = dict(zip(left + right, [*a.shape, *b.shape], strict=True))
    order = batch + rows + columns
    if not len(rows) == len(columns) == 1 or len(batch) > 1:
        product = product.reshape([sizes[label] for label in order])
    return _permuted(product, order, result)


def labels_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """Return the labels of the axes of each operand and of the result; axes of an ellipsis are digits.

    None if an operand or the result repeats a label, or ellipses stand for different numbers of axes.
    """
    operands, arrow, result = equation.replace(" ", "").partition("->")
    terms = operands.split(",")
    if len(terms) != len(ranks):
        return None
    spread = {rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term}
    if len(spread) > 1 or not all(0 <= number <= 10 for number in spread):
        return None
    ellipsis = "0123456789"[: max(spread, default=0)]
    terms = [term.replace("...", ellipsis) for term in terms]
    if not arrow:
        letters = "".join(terms)
        result = ellipsis + "".join(sorted(x for x in letters if x.isalpha() and letters.count(x) == 1))
    result = result.replace("...", ellipsis)
    return None if any(len(set(term)) < len(term) for term in (*terms, result)) else (terms, result)


def _matrices(x: Tensor, labels: str, batch: str, rows: str, columns: str) -> Tensor:
    """Return ``x`` as ``[batch, rows, columns]``, without a batch if there is none. Axes are merged in memory order.

    A transposition of the matrices is part of their product; where their axes are permuted and merged, one is enough.
    """
    first = [labels.index(label) for label in (rows[:1], columns[:1]) if label]
    merged = max(len(rows), len(columns)) > 1 and labels != batch + columns + rows
    by_columns = len(first) == 2 and first[1] < first[0] and not merged
    parts = (columns, rows) if by_columns else (rows, columns)
    sizes = dict(zip(labels, x.shape, strict=True))
    x = _permuted(x, labels, batch + "".join(parts))
    shape = [math.prod(sizes[label] for label in part) for part in ((batch,) if batch else ()) + parts]
    if any(len(part) != 1 for part in (*([batch] if batch else []), *parts)):
        x = x.reshape(shape)
    return x.transpose(-2, -1) if by_columns else x


def _permuted(x: Tensor, labels: str, order: str) -> Tensor:
    return x if labels == order else x.permute([labels.index(label) for label in order])

"""Decompositions of matmuls, grouped ones too, without the broadcast weights and multiplications by one of torch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


def product_of_rows(x: Tensor) -> Tensor:
    """Return the product of the slices along the nonempty first axis, by pairwise multiplication."""
    while (length := len(x)) > 1:
        half = length // 2
        x = torch.cat([x[:half] * x[half : 2 * half], x[2 * half :]])
    return x.squeeze(0)


@decomposes(aten.linear.default)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x @ weight.T + bias``."""
    product = matmul(x, weight.t() if weight.dim() == 2 else weight)
    return product if bias is None else product + bias


@decomposes(aten.matmul.default)
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b``, with batch axes broadcast, as one ``mm`` or ``bmm``.

    A matrix is not repeated for each batch of the other operand: the batch is merged into the rows.
    """
    if a.dim() == 1 and b.dim() == 1:
        return (a * b).sum(dtype=a.dtype)
    if a.dim() == 1:
        return matmul(a.unsqueeze(0), b).squeeze(-2)
    if b.dim() == 1:
        return matmul(a, b.unsqueeze(-1)).squeeze(-1)
    if a.dim() == 2 and b.dim() == 2:
        return torch.mm(a, b)
    if b.dim() == 2:
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        return torch.mm(rows, b).reshape(*a.shape[:-1], b.shape[-1])
    if a.dim() == 2:
        return matmul(b.transpose(-1, -2), a.t()).transpose(-1, -2)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return torch.bmm(_flatten_batch(a, batch), _flatten_batch(b, batch)).reshape(*batch, a.shape[-2], b.shape[-1])


def matmul_transposed(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b.T`` for each matrix of a batch. A product can read ``b`` as it is: its last step transposes it."""
    if a.dim() < 3 or b.dim() < 3:
        return matmul(a, b.transpose(-2, -1))
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    product = torch.bmm(_flatten_batch(a, batch), _flatten_batch(b, batch).transpose(1, 2))
    return product.reshape(*batch, a.shape[-2], b.shape[-2])


def _flatten_batch(x: Tensor, batch: torch.Size) -> Tensor:
    """Broadcast the leading axes of ``x`` to ``batch`` and merge them into one."""
    return x.expand(*batch, *x.shape[-2:]).reshape(math.prod(batch), *x.shape[-2:])


@decomposes(aten.addmm.default)
def addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return ``beta * bias + alpha * a @ b``."""
    return _combine(bias, torch.mm(*_widened(a, b, alpha)), beta, alpha)


@decomposes(aten.baddbmm.default)
def baddbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return ``beta * bias + alpha * a @ b`` for each matrix of a batch."""
    return _combine(bias, torch.bmm(*_widened(a, b, alpha)), beta, alpha)


@decomposes(aten.addbmm.default)
def addbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return ``beta * bias + alpha * sum(a @ b)``, summed over the batch."""
    a, b = _widened(a, b, alpha)
    return _combine(bias, torch.bmm(a, b).sum(0, dtype=a.dtype), beta, alpha)


@decomposes(aten.addmv.default)
def addmv(bias: Tensor, a: Tensor, x: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return ``beta * bias + alpha * a @ x``."""
    return _combine(bias, matmul(*_widened(a, x, alpha)), beta, alpha)


@decomposes(aten._trilinear.default)
def trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    summed: Sequence[int],
    unrolled: int = 1,
) -> Tensor:
    """Return the sum over the axes ``summed`` of the product; each operand gets new axes first.

    As in eager, the last operand that has an axis gives its size. An axis that all operands expand has size 0 if it
    stays. Eager adds up the parts along ``unrolled``: there are none if all operands expand that axis.
    """
    operands, expanded = [a, b, c], [expand_a, expand_b, expand_c]
    sizes: list[int] = []
    for axis in range(a.dim() + len(expand_a)):
        operands = [x.unsqueeze(axis) if axis in new else x for x, new in zip(operands, expanded, strict=True)]
        own_sizes = [x.shape[axis] for x, new in zip(operands, expanded, strict=True) if axis not in new]
        sizes.append(own_sizes[-1] if own_sizes else 0)
    shape = [size for axis, size in enumerate(sizes) if axis not in summed]
    number = sizes[unrolled]
    if any(map(is_empty, operands)) or 0 in [size for size in (*shape, number) if isinstance(size, int)]:
        return torch.zeros(shape, dtype=a.dtype)
    product: Any = 1
    for x, new in zip(operands, expanded, strict=True):
        whole = unrolled in new or statically_known_true(x.shape[unrolled] == number)
        product = product * (x if whole else x.narrow(unrolled, 0, number))
    return product.sum(list(summed), dtype=product.dtype) if len(summed) else product


def _widened(a: Tensor, b: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Return the operands of a product that ``alpha`` scales: half precision in float32, as eager rounds once after."""
    return (a.float(), b.float()) if alpha != 1 and a.dtype in (torch.float16, torch.bfloat16) else (a, b)


def _combine(bias: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """Return ``beta * bias + alpha * product``, in the dtype of the bias.

    With ``beta == 0``, NaN in the bias is ignored; for integers, both numbers are truncated, as in eager.
    """
    if not product.is_floating_point() and not product.is_complex():
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta != 0:
        product = product + (bias if beta == 1 else bias * beta)
    return product.to(bias.dtype)


@decomposes(aten._grouped_mm.default)
def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the products of groups; group ``i`` ends before ``offs[i]``, on the axis that has no group axis.

    That may be the rows of ``a`` (shapes ``(s, k)`` and ``(g, k, n)``), the columns of ``b`` (``(g, m, k)`` and
    ``(k, s)``), or the axis that is summed over (``(m, s)`` and ``(s, n)``). Group
    sizes are data-dependent, so each group's matrix is multiplied with all rows and masked. Outside all groups is 0.
    """
    if offs is None:
        product = torch.bmm(a, b)
    elif b.dim() == 3:
        member = group_masks(offs, a.shape[0])
        product = torch.where(member.unsqueeze(-1), torch.matmul(a, b), 0.0).sum(0)
    elif a.dim() == 3:
        member = group_masks(offs, b.shape[1])
        product = torch.where(member.unsqueeze(1), torch.matmul(a, b), 0.0).sum(0)
    else:
        member = group_masks(offs, a.shape[1])
        rows, columns = torch.where(member.unsqueeze(1), a, 0.0), torch.where(member.unsqueeze(-1), b, 0.0)
        product = torch.bmm(rows, columns)
    product = product if bias is None else product + bias
    return product if out_dtype is None else product.to(out_dtype)


def group_masks(offs: Tensor, size: int) -> Tensor:
    """Return the mask of the positions in each group: ``(groups, size)``."""
    positions = torch.arange(size, dtype=offs.dtype, device=offs.device)
    before_the_end = positions < offs.unsqueeze(-1)
    before_the_start = torch.cat([torch.zeros_like(before_the_end[:1]), before_the_end[:-1]])
    return before_the_end & ~before_the_start


def grouped_mm_backward(a: Tensor, b: Tensor, offs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``a``, of shape ``(s, k)``, and ``b``, ``(g, k, n)``, of ``grouped_mm(a, b, offs)``."""
    return grouped_mm.rule(gradient, b.mT, offs), grouped_mm.rule(a.mT, gradient, offs)


LIBRARY_RULES: Mapping[str, Callable[..., Any]] = {
    "transformers::grouped_mm_fallback": grouped_mm.rule,
    "transformers::grouped_mm_fallback_backward": grouped_mm_backward,
}
"""Rules for opaque operators of other libraries, by their names, as the library may not be installed."""

"""Rules of collectives of several tensors, and of those that autograd differentiates, by the plain ones."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.distributed.collectives import c10d, c10d_autograd


@decomposes(c10d.all_reduce_coalesced.default)
def all_reduce_coalesced(inputs: Sequence[Tensor], reduce_op: str, group_name: str) -> list[Tensor]:
    """Reduce each tensor by itself."""
    return [c10d.all_reduce(tensor, reduce_op, group_name) for tensor in inputs]


@decomposes(c10d.all_gather_into_tensor_coalesced.default)
def all_gather_coalesced(inputs: Sequence[Tensor], group_size: int, group_name: str) -> list[Tensor]:
    """Gather each tensor by itself."""
    return [c10d.all_gather_into_tensor(tensor, group_size, group_name) for tensor in inputs]


@decomposes(c10d.reduce_scatter_tensor_coalesced.default)
def reduce_scatter_coalesced(
    inputs: Sequence[Tensor], reduce_op: str, group_size: int, group_name: str
) -> list[Tensor]:
    """Reduce and scatter each tensor by itself."""
    return [c10d.reduce_scatter_tensor(tensor, reduce_op, group_size, group_name) for tensor in inputs]


@decomposes(c10d.wait_tensors.default)
def wait_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Wait for each tensor by itself; torch has the operator since 2.15."""
    return [c10d.wait_tensor(tensor) for tensor in tensors]


@decomposes(c10d_autograd.all_gather_into_tensor.default)
def all_gather_of_autograd(x: Tensor, group_size: int, group_name: str) -> Tensor:
    """Gather as the operator without a gradient does."""
    return c10d.all_gather_into_tensor(x, group_size, group_name)


@decomposes(c10d_autograd.reduce_scatter_tensor.default)
def reduce_scatter_of_autograd(x: Tensor, reduce_op: str, group_size: int, group_name: str) -> Tensor:
    """Reduce and scatter as the operator without a gradient does."""
    return c10d.reduce_scatter_tensor(x, reduce_op, group_size, group_name)


@decomposes(c10d_autograd.all_to_all_single.default)
def all_to_all_of_autograd(
    x: Tensor, output_split_sizes: Sequence[int], input_split_sizes: Sequence[int], group_name: str
) -> Tensor:
    """Exchange as the operator without a gradient does."""
    return c10d.all_to_all_single(x, output_split_sizes, input_split_sizes, group_name)


COLLECTIVES = (
    all_reduce_coalesced,
    all_gather_coalesced,
    reduce_scatter_coalesced,
    wait_tensors,
    all_gather_of_autograd,
    reduce_scatter_of_autograd,
    all_to_all_of_autograd,
)

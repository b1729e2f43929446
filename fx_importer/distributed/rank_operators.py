"""Functional collectives and slices that torch lacks: permutations and the own rank, as one program for all ranks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fx_importer.errors import UsageError
from fx_importer.frontend.torch_patches import MASKED_ROWS, SHARD_SLICES, patched


def collective_permute(x: torch.Tensor, targets: Sequence[int], group: Any) -> torch.Tensor:
    """Send ``x`` from each rank of a process group to another, as `jax.lax.ppermute` does.

    `permute_tensor` of torch writes what the exporting rank sends into the program, and not what others do.

    Args:
        x: a tensor of the same shape and dtype on all ranks.
        targets: for each rank of the group, the rank that it sends to; -1 if it sends to none.
        group: as torch's functional collectives take it: ``(mesh, "tp")``, a process group or its name.

    Returns:
        What was sent to this rank; zeros if nothing was.

    Raises `UsageError` unless ``targets`` are different ranks of the group.
    """
    name = _name_of(group)
    size = _group_named(name).size()
    sent = [target for target in targets if target != -1]
    if len(targets) != size or len({*sent}) != len(sent) or not {*sent} <= {*range(size)}:
        raise UsageError(f"targets={list(targets)}: each of the {size} ranks of the group sends to another, or to -1")
    return permute_operator(x, list(targets), name)


def group_rank(group: Any) -> torch.Tensor:
    """Return the rank of this device in a process group, an int64 tensor of no dimensions.

    Python's ``get_rank()`` is a number of the exporting rank. ``group`` is as for `collective_permute`.
    """
    return rank_operator(_name_of(group))


@torch.library.custom_op("fx_importer::collective_permute", mutates_args=())
def permute_operator(x: torch.Tensor, targets: list[int], group_name: str) -> torch.Tensor:
    group = _group_named(group_name)
    rank, flat = torch.distributed.get_rank(group), x.contiguous().flatten()
    sends = [flat.numel() if target == targets[rank] else 0 for target in range(len(targets))]
    receives = [flat.numel() if target == rank else 0 for target in targets]
    blocks = flat if any(sends) else flat[:0]
    received = torch.ops._c10d_functional.all_to_all_single(blocks, receives, sends, group_name)
    received = torch.ops._c10d_functional.wait_tensor(received)
    return received.reshape(x.shape).clone() if any(receives) else torch.zeros_like(x)


@permute_operator.register_fake
def _(x: torch.Tensor, targets: list[int], group_name: str) -> torch.Tensor:
    return x.new_empty(x.shape)


def _permute_setup(ctx: Any, inputs: Any, output: Any) -> None:
    _, targets, ctx.group_name = inputs
    ctx.sources = [targets.index(rank) if rank in targets else -1 for rank in range(len(targets))]


def _permute_backward(ctx: Any, gradient: torch.Tensor) -> Any:
    return permute_operator(gradient, ctx.sources, ctx.group_name), None, None


permute_operator.register_autograd(_permute_backward, setup_context=_permute_setup)


@torch.library.custom_op("fx_importer::group_rank", mutates_args=())
def rank_operator(group_name: str) -> torch.Tensor:
    group = _group_named(group_name)
    return torch.tensor(torch.distributed.get_rank(group))


@rank_operator.register_fake
def _(group_name: str) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64)


def _name_of(group: Any) -> str:
    functional: Any = importlib.import_module("torch.distributed._functional_collectives")
    return functional._resolve_group_name(group)


def _group_named(name: str) -> Any:
    groups: Any = importlib.import_module("torch.distributed.distributed_c10d")
    return groups._resolve_process_group(name)


@contextmanager
def slices_at_run_time() -> Iterator[None]:
    """Trace the rank in a mesh as `group_rank` where DTensor divides a whole tensor, or the rows of an embedding.

    DTensor writes the slice of the exporting rank into the program otherwise. Where ranks have parts of different
    sizes, it still does.
    """
    from torch.distributed.tensor.placement_types import Shard, _MaskPartial

    shard, partition = Shard._replicate_to_shard, _MaskPartial._partition_value

    def to_shard(self: Any, whole: torch.Tensor, mesh: Any, axis: int, index: Any) -> torch.Tensor:
        size, parts = whole.shape[self.dim], mesh.size(axis)
        if size % parts:
            return shard(self, whole, mesh, axis, index)
        stacked = whole.unflatten(self.dim, (parts, size // parts))
        return stacked.index_select(self.dim, group_rank((mesh, axis)).reshape(1)).flatten(self.dim, self.dim + 1)

    def to_own_rows(self: Any, indices: torch.Tensor, mesh: Any, axis: int) -> torch.Tensor:
        size, parts = self.offset_shape[self.offset_dim], mesh.size(axis)
        if size % parts:
            return partition(self, indices, mesh, axis)
        start = group_rank((mesh, axis)) * (size // parts)
        others, own = self._mask_tensor(indices, start, size // parts)
        self.mask_buffer.materialize_mask(others)
        return own

    with patched({SHARD_SLICES: to_shard, MASKED_ROWS: to_own_rows}):
        yield

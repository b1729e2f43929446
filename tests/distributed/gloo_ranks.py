"""Run collectives by torch.distributed's gloo, in a process for each rank: ``python gloo_ranks.py 2,2 FILE``.

The file has the results of each case for each rank; a text for a case that gloo does not have.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from fx_importer.distributed import collective_permute, group_rank

Case = Callable[[torch.Tensor, DeviceMesh, int], torch.Tensor]


def ring(size: int) -> list[int]:
    return [(rank + 1) % size for rank in range(size)]


MOVES: dict[str, Case] = {
    "all_gather": lambda x, mesh, axis: collectives.all_gather_tensor(x, 0, (mesh, axis)),
    "all_gather_last": lambda x, mesh, axis: collectives.all_gather_tensor(x, 1, (mesh, axis)),
    "all_to_all": lambda x, mesh, axis: collectives.all_to_all_single(x, None, None, (mesh, axis)),
    "all_to_all_autograd": lambda x, mesh, axis: collectives.all_to_all_single_autograd(x, None, None, (mesh, axis)),
    "all_gather_coalesced": lambda x, mesh, axis: torch.cat(
        collectives.all_gather_into_tensor_coalesced([x, x[:3]], mesh.get_group(axis))
    ),
    "all_gather_autograd": lambda x, mesh, axis: collectives.all_gather_tensor_autograd(x, 1, (mesh, axis)),
    "shard_dim_alltoall": lambda x, mesh, axis: torch.ops._dtensor.shard_dim_alltoall(
        x, 1, 0, mesh.get_group(axis).group_name
    ),
    "permute": lambda x, mesh, axis: collective_permute(x, ring(mesh.size(axis)), (mesh, axis)),
    "send": lambda x, mesh, axis: collective_permute(x, [1, *[-1] * (mesh.size(axis) - 1)], (mesh, axis)),
    "rank": lambda x, mesh, axis: group_rank((mesh, axis)) + x,
    "broadcast": lambda x, mesh, axis: collectives.broadcast(x, 1, (mesh, axis)),
}
REDUCTIONS: dict[str, Callable[[str], Case]] = {
    "all_reduce": lambda by: lambda x, mesh, axis: collectives.all_reduce(x, by, (mesh, axis)),
    "all_reduce_coalesced": lambda by: (
        lambda x, mesh, axis: torch.cat(collectives.all_reduce_coalesced([x, x[:3]], by, (mesh, axis)))
    ),
    "reduce_scatter": lambda by: lambda x, mesh, axis: collectives.reduce_scatter_tensor(x, by, 0, (mesh, axis)),
    "reduce_scatter_last": lambda by: (
        lambda x, mesh, axis: collectives.reduce_scatter_tensor(x.mT.contiguous(), by, 1, (mesh, axis))
    ),
    "reduce_scatter_autograd": lambda by: (
        lambda x, mesh, axis: collectives.reduce_scatter_tensor_autograd(x, by, 0, (mesh, axis))
    ),
    "reduce_scatter_coalesced": lambda by: (
        lambda x, mesh, axis: torch.cat(
            collectives.reduce_scatter_tensor_coalesced([x, x[4:]], by, [0, 0], mesh.get_group(axis))
        )
    ),
}
BITWISE = ("band", "bor", "bxor")
"""Reductions that XLA 0.10 does not have on CPUs."""
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")


def reductions_of(dtype: str) -> tuple[str, ...]:
    return () if dtype == "bool" else ("sum", "max", "min", "product", *(BITWISE if "int" in dtype else ()))


def cases() -> Iterator[tuple[str, Case, str, int]]:
    """Yield the name, the function, the dtype and the axis of the mesh of each case."""
    for axis in (0, 1):
        for dtype in DTYPES:
            for name, move in MOVES.items():
                yield f"{name} {dtype} {axis}", move, dtype, axis
            for name, reduction in REDUCTIONS.items():
                for by in reductions_of(dtype):
                    yield f"{name} {by} {dtype} {axis}", reduction(by), dtype, axis


def rows(rank: int, dtype: str) -> torch.Tensor:
    """Return the input of a rank: small integers with a sign where there is one, of 8 rows."""
    numbers = torch.randint(0 if dtype in ("uint8", "bool") else -3, 4, (8, 3), generator=torch.manual_seed(rank))
    return numbers.to(getattr(torch, dtype))


def results(rank: int, mesh: DeviceMesh) -> dict[str, torch.Tensor | str]:
    """Return the results of all cases on a rank."""
    found: dict[str, torch.Tensor | str] = {}
    for name, function, dtype, axis in cases():
        try:
            found[name] = collectives.wait_tensor(function(rows(rank, dtype), mesh, axis)).clone()
        except (RuntimeError, ValueError) as error:
            found[name] = str(error)
    return found


def main(sizes: str, path: str) -> None:
    shape = tuple(map(int, sizes.split(",")))
    world = torch.Size(shape).numel()
    with tempfile.TemporaryDirectory() as folder:
        children: list[int] = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                torch.distributed.init_process_group(
                    "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
                )
                mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
                torch.save(results(rank, mesh), f"{folder}/{rank}")
                torch.distributed.barrier()
                os._exit(0)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        torch.save([torch.load(f"{folder}/{rank}") for rank in range(world)], Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])

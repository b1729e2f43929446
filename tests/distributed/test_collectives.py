"""Collectives of programs: their process groups in the manifest, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from fx_importer import Lowered, Manifest, lower
from fx_importer.distributed import fake_process_group
from fx_importer.engines import JitBackend, StablehloBackend
from fx_importer.errors import FxImporterError, UsageError
from fx_importer.manifest import ProcessGroup

ROWS = torch.ones(4, 8)


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with fake_process_group(4, rank=2):
        yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def lowered(function: Callable[[torch.Tensor], Any], x: torch.Tensor = ROWS, **options: Any) -> Lowered:
    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    keywords: dict[str, Any] = {"output_type": "stablehlo", **options}
    return lower(Model(), x, **keywords)


def reduced(mesh: DeviceMesh, reduction: str = "sum", axis: int = 1) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: collectives.all_reduce(x, reduction, (mesh, axis))


def test_process_groups_in_the_manifest(mesh: DeviceMesh):
    manifest = lowered(lambda x: reduced(mesh)(reduced(mesh, axis=0)(x)), output_type="raw", mesh=mesh).manifest
    assert manifest.mesh == {"dp": 2, "tp": 2}
    assert {group.axes: group for group in manifest.process_groups.values()} == {
        ("dp",): ProcessGroup(("dp",), ((0, 2), (1, 3))),
        ("tp",): ProcessGroup(("tp",), ((0, 1), (2, 3))),
    }
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_autograd_forms_are_lowered(mesh: DeviceMesh):
    text = str(lowered(lambda x: collectives.all_gather_tensor_autograd(x, 0, (mesh, 1)), mesh=mesh).module)
    assert "stablehlo.all_gather" in text


@pytest.mark.parametrize("dtype, operation", [("int32", "add"), ("uint8", "maximum"), ("bfloat16", "multiply")])
def test_reductions(mesh: DeviceMesh, dtype: str, operation: str):
    reduction = {"add": "sum", "maximum": "max", "multiply": "product"}[operation]
    x = torch.ones(3, dtype=getattr(torch, dtype))
    text = str(lowered(reduced(mesh, reduction), x, mesh=mesh).module)
    assert f"stablehlo.{operation} " in text
    assert ("ui8" in text) == (dtype == "uint8")


def in_a_branch(mesh: DeviceMesh) -> Callable[[torch.Tensor], torch.Tensor]:
    branches = lambda x: collectives.all_reduce(x, "sum", (mesh, 1)) + 0, lambda x: x * 1
    return lambda x: torch.cond(x.sum() > 0, *branches, (x,))


@pytest.mark.parametrize(
    "function, x, options, sentence",
    [
        (reduced, ROWS, {"mesh": None}, "pass the mesh"),
        (reduced, ROWS, {"mesh": "tp=4"}, r"has the ranks \[2, 3\]: along no axes of the mesh tp=4"),
        (reduced, ROWS, {"output_type": "linalg-on-tensors"}, "has no operations between devices"),
        (reduced, ROWS, {"output_type": "tosa"}, "has no operations between devices"),
        (reduced, ROWS > 0, {}, "'sum' of i1 is not defined"),
        (lambda mesh: reduced(mesh, "avg"), ROWS.int(), {}, "'avg' of i32 is not defined"),
        (lambda mesh: reduced(mesh, "premul_sum"), ROWS, {}, "has no form in StableHLO"),
        (
            lambda mesh: lambda x: collectives.permute_tensor(x, [1, 0], (mesh, 1)),
            ROWS,
            {},
            "parts have different sizes",
        ),
        (in_a_branch, ROWS, {}, "in a branch or a loop"),
    ],
)
def test_refused(mesh: DeviceMesh, function: Any, x: torch.Tensor, options: dict[str, Any], sentence: str):
    with pytest.raises(FxImporterError, match=sentence):
        lowered(function(mesh), x, **({"mesh": mesh} | options))


def test_parts_of_meshes_are_refused(mesh: DeviceMesh):
    with pytest.raises(UsageError, match="pass the whole one"):
        lowered(reduced(mesh), mesh=mesh["tp"])


def test_one_device_does_not_run_the_program_of_several(mesh: DeviceMesh):
    program = lowered(reduced(mesh), mesh=mesh)
    for call in (program.verify, program.bisect, lambda: program.run(ROWS), lambda: program.caller(backend="eager")):
        with pytest.raises(UsageError, match="runs on 4 devices together, of the mesh dp=2,tp=2"):
            call()
    for backend in (JitBackend(), StablehloBackend()):
        with pytest.raises(UsageError, match="runs on the 4 devices of the mesh dp=2,tp=2 together"):
            backend.load(program.module)

"""Plans by name: the shardings that they give a program, in the notations that XLA reads, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from fx_importer import Lowered, Manifest, load, lower
from fx_importer.distributed import Mesh, Plan, fake_process_group, plan_on_mesh
from fx_importer.distributed.shardings import gspmd
from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.errors import UsageError

X = torch.randn(8, 16, generator=torch.manual_seed(0))


def two_layers(hidden: int = 32) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(16, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 16))


TENSOR = {"0.*": {"tp": 0}, "2.weight": {"tp": Shard(1)}, "input": {"dp": 0}}


def lowered(plan: Any, mesh: str = "dp=2,tp=4", **options: Any) -> Lowered:
    keywords: dict[str, Any] = {"output_type": "stablehlo", "weights": "args", **options}
    return lower(two_layers(), X, mesh=mesh, plan=plan, **keywords)


def test_shardings_are_attributes_of_arguments():
    made = lowered(TENSOR)
    text = str(made.module)
    assert 'xla.sdy.meshes = "{mesh = #sdy.mesh<[\\22dp\\22=2, \\22tp\\22=4]>}"' in text
    assert (
        '"2.weight", mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{}, {\\22tp\\22}]>"}, '
        'mhlo.sharding = "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"' in text
    )
    signature = made.manifest.functions["main"]
    shardings = {each.name: each.sharding for each in signature.arguments}
    assert shardings["0.bias"] == (("tp",),)
    assert shardings["2.bias"] == ((),)
    assert signature.results[0].sharding is None
    assert Manifest.from_json(made.manifest.to_json()) == made.manifest


def test_the_notation_is_that_of_xla():
    jax, client = XLA_ENGINE.imported("jax"), XLA_ENGINE.imported("jax._src.lib").xla_client
    devices = np.array(jax.local_devices(backend="cpu")[:8])
    for text in ("dp=2,tp=4", "a=2,b=2,c=2", "a=2,one=1,b=4"):
        mesh = Mesh.get(text)
        names, sizes = zip(*mesh.axes, strict=True)
        on_devices = jax.sharding.Mesh(devices.reshape(sizes), names)
        larger = [name for name, size in mesh.axes if size > 1]
        for count in range(len(larger) + 1):
            for axes in itertools.permutations(larger, count):
                for cut in range(count + 1):
                    sharding = axes[:cut], axes[cut:]
                    spec = jax.sharding.PartitionSpec(*(each or None for each in sharding))
                    expected = jax.sharding.NamedSharding(on_devices, spec)._to_xla_hlo_sharding(2)
                    assert gspmd(sharding, mesh) == str(expected)
                    assert client.HloSharding.from_string(gspmd(sharding, mesh)) == expected


@pytest.mark.parametrize("reader", ["GSPMD", "Shardy"])
def test_xla_reads_the_attributes(reader: str):
    """Compile the module itself, which the backend does not: jax writes the shardings again there."""
    jax, client = XLA_ENGINE.imported("jax"), XLA_ENGINE.imported("jax._src.lib").xla_client
    backend = jax.local_devices(backend="cpu")[0].client
    text = str(lowered(TENSOR).module)
    if reader == "Shardy":
        text = "\n".join(_without_gspmd(line) for line in text.splitlines())
    options = client.CompileOptions()
    options.num_partitions = options.executable_build_options.num_partitions = 8
    options.executable_build_options.use_spmd_partitioning = True
    options.executable_build_options.use_shardy_partitioner = reader == "Shardy"
    options.executable_build_options.device_assignment = client.DeviceAssignment.create(
        np.arange(8, dtype=np.int32).reshape(1, 8)
    )
    devices = XLA_ENGINE.imported("jaxlib._jax").DeviceList(tuple(backend.local_devices()[:8]))
    program = backend.compile_and_load(text, devices, options)
    assert [str(client.HloSharding.from_proto(each)) for each in program.get_parameter_shardings()] == [
        "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        "{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        "{replicated}",
        "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
    ]


def _without_gspmd(line: str) -> str:
    parts = line.split(', mhlo.sharding = "')
    return parts[0] + "".join(part.partition('"')[2] for part in parts[1:])


def test_placements_in_all_forms():
    mesh = Mesh.get("dp=2,tp=4")
    forms = {"a": {"tp": 1}, "b": {"tp": Shard(1)}, "c": [Replicate(), Shard(1)], "d": [None, 1]}
    plan = Plan.get(forms, mesh)
    assert {*map(str, plan.entries.values())} == {"{'tp': 1}"}
    assert Plan.get(str(plan), mesh) == plan
    assert Plan.get({"a": Shard(0)}, Mesh.get("dp=1,tp=4")).entries == {"a": {"tp": 0}}
    assert Plan.get({"layers.*.up": {"tp": 0}, "layers.0.up": {}}, mesh).entry("layers.0.up") == {}
    assert plan.entry("ab") is None


def test_the_plan_of_a_parallelized_module():
    def build(mesh):
        model = parallelize_module(two_layers(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        return model, ()

    entries = plan_on_mesh(build, "dp=2,tp=4").entries
    assert [*entries["0.weight"].items()] == [("tp", 0), ("dp", 0)]  # FSDP divides what the axis behind it has divided
    assert entries["2.weight"] == {"dp": 0, "tp": 1}
    assert entries["2.bias"] == {"dp": 0}
    assert lowered(plan_on_mesh(build, "dp=2,tp=4")).manifest.functions["main"].arguments[0].sharding == (
        ("tp", "dp"),
        (),
    )


@pytest.mark.parametrize(
    "plan, options, sentence",
    [
        ({"0.wieght": {"tp": 0}}, {}, "'0.wieght' names nothing: there are '0.weight', '0.bias'"),
        ({"0.weight": {"tp": 0}}, {"weights": "inline"}, "Weights are divided with weights='args'"),
        ({"0.weight": {"tp": 2}}, {}, "'0.weight' has 2 dimensions, and 'tp' is to divide dimension 2"),
        ({"input": {"tp": 1, "dp": 1}}, {"mesh": "dp=3,tp=4"}, "does not divide dimension 1 of 'input', of size 16"),
        ({"0.weight": {"pp": 0}}, {}, "names pp, which the mesh does not have"),
        ({"0.weight": Shard(0)}, {}, "says not along which axis: write {'dp': Shard"),
        ({"0.weight": [Shard(0)]}, {}, "has 1 placements, and the mesh 2 axes"),
        ({"0.weight": {"tp": Partial()}}, {}, "a program of whole tensors has no summands"),
        ({"0.weight": {"tp": "0"}}, {}, "Shard.0. or 0 divides"),
        ("{", {}, "the plan is not JSON"),
        ([], {}, "is not a plan: pass a mapping"),
        ({}, {"mesh": None}, "names axes of a mesh: pass it too"),
        (TENSOR, {"output_type": "linalg-on-tensors"}, "partitioners, which read stablehlo"),
        (
            {"input": {"dp": 0}},
            {"dynamic_shapes": ({0: torch.export.Dim("n", min=2, max=64)},)},
            "dimension 0 of 'input' is dynamic",
        ),
    ],
)
def test_refused(plan: Any, options: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        lowered(plan, **options)


def test_programs_of_each_rank_have_no_plan():
    with fake_process_group(8):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))

        class Reduced(torch.nn.Module):
            def forward(self, x):
                return collectives.all_reduce(x, "sum", (mesh, 1))

        with pytest.raises(UsageError, match="'all_reduce' communicates: this is the program of each rank"):
            lower(Reduced(), X, output_type="stablehlo", mesh=mesh, plan={"x": {"dp": 0}})
        with pytest.raises(UsageError, match="lower the whole one"):
            lower(Reduced(), X, output_type="stablehlo", mesh=mesh).on_mesh("tp=8", {"x": 0})


def test_a_file_has_the_plan(tmp_path: Path):
    made = lowered(TENSOR)
    made.save(tmp_path / "model.mlir")
    options = load(tmp_path / "model.mlir").options.importing
    assert options.mesh == "dp=2,tp=4"
    entries = Plan.get(options.plan, Mesh.get(options.mesh)).entries
    assert (entries["0.bias"], entries["2.weight"], entries["2.bias"]) == ({"tp": 0}, {"tp": 1}, {})

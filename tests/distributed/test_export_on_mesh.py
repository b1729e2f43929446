"""Programs of modules that are parallelized with DTensor: one for all ranks, or a sentence."""

from __future__ import annotations

import copy
import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from fx_importer import Lowered, lower
from fx_importer.distributed import Mesh, MeshProgram, export_on_mesh, fake_process_group
from fx_importer.distributed.shards import read_shards
from fx_importer.errors import UsageError

needs_xla = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="the extra 'xla' is not installed")


class Block(torch.nn.Module):
    def __init__(self, hidden: int = 32):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, hidden)
        self.down = torch.nn.Linear(hidden, 16)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


torch.manual_seed(0)
WHOLE, X = Block(), torch.randn(2, 8, 16)
TENSOR = {"up": ColwiseParallel(), "down": RowwiseParallel()}
SEQUENCE = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
}
WHOLE_SEQUENCE = {
    "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
    **SEQUENCE,
    "down": RowwiseParallel(),
}
"""Of a whole input, of which each rank takes its part."""


class OwnRank(torch.nn.Module):
    """Takes a slice that is this rank's, by its number in Python."""

    def __init__(self, mesh: Any):
        super().__init__()
        self.rank = mesh["tp"].get_local_rank()

    def forward(self, x):
        return x.chunk(2, 1)[self.rank] * 2


def exported(plan: Any, x: torch.Tensor = X, model: Block = WHOLE, mesh: str = "dp=2,tp=2") -> MeshProgram:
    return export_on_mesh(lambda mesh: (parallelize_module(copy.deepcopy(model), mesh["tp"], plan), (x,)), mesh)


def lowered(program: MeshProgram) -> Lowered:
    return lower(program.program, output_type="stablehlo", mesh=str(program.mesh), weights="args")


def in_two_files(folder: Path) -> Path:
    """Write the weights as transformers writes large ones."""
    folder.mkdir()
    homes = {name: f"model-{name.endswith('bias'):d}.safetensors" for name in WHOLE.state_dict()}
    for file in {*homes.values()}:
        part = {name: held for name, held in WHOLE.state_dict().items() if homes[name] == file}
        safetensors.torch.save_file(part, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    return folder


def test_weights_have_their_names_and_parts(tmp_path: Path):
    program = exported(TENSOR)
    assert program.layouts["up.weight"] == (None, 0)
    assert program.layouts["down.weight"] == (None, 1)
    made = lowered(program)
    assert 'tensor<16x16xf32> {fx_importer.weight = "up.weight"}' in str(made.module)
    assert [group.axes for group in made.manifest.process_groups.values()] == [("tp",)]
    safetensors.torch.save_file(WHOLE.state_dict(), tmp_path / "whole.safetensors")
    states = program.states(tmp_path / "whole.safetensors")
    assert torch.equal(states[3]["down.weight"], WHOLE.down.weight[:, 16:])
    folder = in_two_files(tmp_path / "folder")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that no process group is there
        save(WHOLE.state_dict(), checkpoint_id=tmp_path / "checkpoint")
    of_checkpoint, of_folder = program.states(tmp_path / "checkpoint"), program.states(folder)
    for rank, state in enumerate(program.states(WHOLE.state_dict())):
        assert all(torch.equal(state[name], states[rank][name]) for name in state)
        assert all(torch.equal(state[name], of_checkpoint[rank][name]) for name in state)
        assert all(torch.equal(state[name], of_folder[rank][name]) for name in state)
    (own,) = program.states(folder, ranks=[3])
    assert torch.equal(own["down.weight"], of_folder[3]["down.weight"])
    with pytest.raises(UsageError, match="is not a checkpoint of torch.distributed"):
        program.states(tmp_path)
    index = folder / "model.safetensors.index.json"
    for text, sentence in (
        ("{", "is not an index"),
        ('{"weight_map": {"up.bias": "../x"}}', "lists '../x', which is not a file"),
    ):
        index.write_text(text)
        with pytest.raises(UsageError, match=sentence):
            program.states(folder)


def test_a_saved_program_needs_no_process_group(tmp_path: Path):
    program = exported(TENSOR)
    torch.export.save(program.program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2")
    made = lower(loaded, output_type="stablehlo", mesh="dp=2,tp=2", weights="args")
    assert made.manifest.functions == lowered(program).manifest.functions
    assert made.manifest.weights == lowered(program).manifest.weights
    with pytest.raises(UsageError, match="communicates along tp, which x=4 does not have"):
        lower(loaded, output_type="stablehlo", mesh="x=4", weights="args")


def test_a_dimension_along_two_axes():
    bias = {"up.bias": WHOLE.up.bias.detach()}
    layouts, shapes = {"up.bias": (0, 0)}, {"up.bias": (8,)}
    parts = [read_shards(bias, layouts, shapes, Mesh.get("a=2,b=2"), rank) for rank in range(4)]
    assert torch.equal(torch.cat([part["up.bias"] for part in parts]), WHOLE.up.bias)


@needs_xla
def test_results_are_those_of_the_whole_module():
    expected = WHOLE(X).detach()
    halves = [X[:, :4], X[:, 4:]] * 2
    for plan, inputs in ((TENSOR, [X] * 4), (SEQUENCE, halves), (WHOLE_SEQUENCE, [X] * 4)):
        program = exported(plan, inputs[0])
        found = lowered(program).caller_on_mesh(program.states(WHOLE.state_dict()))([(each,) for each in inputs])
        for first, second in (found[:2], found[2:]):
            whole = torch.cat([first, second], 1) if plan is SEQUENCE else first
            torch.testing.assert_close(whole, expected)


@pytest.mark.parametrize(
    "plan, options, sentence",
    [
        ({"middle": ColwiseParallel()}, {}, "a plan names what the module does not have.*'middle'"),
        (
            {**TENSOR, "down": RowwiseParallel(output_layouts=Partial(), use_local_output=False)},
            {},
            r"result 0 of the module is a DTensor placed as \(Partial\(sum\),\)",
        ),
        (TENSOR, {"model": Block(30), "mesh": "dp=1,tp=4"}, "does not divide dimension 0 of 'up.weight', of size 30"),
    ],
)
def test_refused(plan: Any, options: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        exported(plan, **options)


def test_a_slice_by_a_number_of_python_is_refused():
    with pytest.raises(UsageError, match="ranks 0 and 3 have different programs.*test_export_on_mesh.py"):
        export_on_mesh(lambda mesh: (OwnRank(mesh), (X,)), "dp=2,tp=2")


def test_rows_of_an_embedding_are_refused():
    style, tokens = RowwiseParallel(input_layouts=Replicate()), torch.tensor([1, 2])
    model = torch.nn.Sequential(torch.nn.Embedding(8, 4))
    with pytest.raises(UsageError, match=r"divide its columns \(ColwiseParallel\)"):
        export_on_mesh(lambda mesh: (parallelize_module(copy.deepcopy(model), mesh, {"0": style}), (tokens,)), "tp=2")


def test_weights_that_do_not_fit():
    program = exported(TENSOR)
    with pytest.raises(UsageError, match=r"'norm.weight' is missing; .*'up.bias' has shape \[30\], and is not \[16\]"):
        program.states({name: each for name, each in Block(30).state_dict().items() if name != "norm.weight"})
    with pytest.raises(UsageError, match="'norm.weight' is of type int"):
        program.states(dict.fromkeys(WHOLE.state_dict(), 1))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a mapping from names to tensors, or a path, and not NoneType"):
        program.states(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("built", [None, torch.nn.Linear(16, 4), (torch.nn.Linear(16, 4), X)])
def test_what_build_returns(built: Any):
    with pytest.raises(UsageError, match=r"return module, \(x,\)"):
        export_on_mesh(lambda mesh: built, "tp=2")


@pytest.mark.parametrize("ranks", [[], [0, 7]])
def test_ranks_that_the_mesh_does_not_have(ranks: list[int]):
    with pytest.raises(UsageError, match="name ranks of the mesh tp=2, from 0 to 1"):
        export_on_mesh(lambda mesh: (WHOLE, (X,)), "tp=2", ranks=ranks)


def test_other_programs_of_dtensors_are_refused():
    with fake_process_group(2):
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        program = torch.export.export(parallelize_module(copy.deepcopy(WHOLE), mesh, TENSOR), (X,))
        with pytest.raises(UsageError, match="'up.weight'.*export_on_mesh"):
            lower(program, output_type="stablehlo", mesh=mesh)

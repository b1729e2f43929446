"""Programs of GPUs, lowered on a machine without one: saved there, fake, or on a device that the host cannot read."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram

from fx_importer import lower
from fx_importer.fx_graph.program_files import read_program
from tests.running import run_script

OUTPUT_TYPES = ["raw", "torch", "linalg-on-tensors", "tosa", "stablehlo"]
CUDA = torch.device("cuda:0")


class Net(torch.nn.Module):
    scale: torch.Tensor

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.arange(4.0))
        self.constant = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            angles = torch.arange(4, device=x.device) * self.scale
        return self.linear(x) + angles + torch.ones(4, device=x.device) + self.constant.to(x.device)


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    return torch.export.export(Net().eval(), (torch.ones(2, 4),))


def on_cuda(value: Any) -> Any:
    """Return JSON of a program as a machine with a GPU saves it."""
    if isinstance(value, dict):
        if value.get("type") == "cpu" and "index" in value:
            return {"type": "cuda", "index": 0}
        return {key: on_cuda(each) for key, each in value.items()}
    if isinstance(value, list):
        return [on_cuda(each) for each in value]
    return "cuda" if value == "cpu" else value


@pytest.fixture(scope="module")
def saved(program, tmp_path_factory) -> Path:
    """The program as ``torch.export.save`` writes it on a GPU."""
    on_cpu, path = io.BytesIO(), tmp_path_factory.mktemp("saved") / "cuda.pt2"
    torch.export.save(program, on_cpu)
    with zipfile.ZipFile(on_cpu) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith(".json"):
                data = json.dumps(on_cuda(json.loads(data))).encode()
            elif name.endswith("sample_inputs/model.pt"):
                data = with_cuda_storages(data)
            target.writestr(name, data)
    return path


def with_cuda_storages(saved: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved)) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, data.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0"))
    return made.getvalue()


@pytest.mark.parametrize("trust", [False, True])
def test_saved_on_a_gpu(program, saved, trust):
    with pytest.raises(AssertionError, match="CUDA"):
        torch.export.load(saved)
    read = read_program(saved, trust=trust)
    assert {value.device.type for value in read.state_dict.values()} == {"cpu"}
    x = torch.randn(2, 4)
    torch.testing.assert_close(read.module()(x), program.module()(x))
    lowered = lower(read, output_type="linalg-on-tensors")
    torch.testing.assert_close(lowered.run(x), program.module()(x))


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
def test_captured_on_a_gpu(output_type):
    program = torch.export.export(Net().eval(), (torch.ones(2, 4),))
    expected = str(lower(program, output_type=output_type).module)
    for node in program.graph.nodes:
        if isinstance(value := node.meta.get("val"), FakeTensor):
            node.meta["val"] = fake(value, value.fake_mode)
        node.kwargs = {name: CUDA if name == "device" else value for name, value in node.kwargs.items()}
    assert str(lower(program, output_type=output_type).module) == expected
    assert program.graph.find_nodes(op="placeholder")[0].meta["val"].device == CUDA


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            return torch.softmax(y, -1), torch.cat([y, x])


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
def test_autocast_of_a_gpu(output_type):
    """CUDA computes softmax in float32 under autocast, and the CPU in bfloat16."""
    model, x = Mixed().eval(), torch.randn(2, 4)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=64)},))
    autocast, softmax = torch.ops.higher_order.wrap_with_autocast, torch.ops.aten.softmax.int
    for module in program.graph_module.modules():
        for node in module.graph.nodes:  # type: ignore[union-attr]
            if node.target is autocast:
                node.args = ("cuda", *node.args[1:])
                node.meta["val"] = (node.meta["val"][0].float(), *node.meta["val"][1:])
            if node.target is softmax or (node.name.startswith("getitem") and node.args[1] == 0):
                node.meta["val"] = node.meta["val"].float()
    y = (x.bfloat16() @ model.linear.weight.bfloat16().T).float()
    results = lower(program, output_type=output_type).caller(backend="jit")(x)
    torch.testing.assert_close(results, (torch.softmax(y, -1), torch.cat([y, x])))


class Literal(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) + torch.arange(4, device="cuda") + torch.ones(4).to("cuda") + torch.ones(4).cuda()


@pytest.mark.parametrize("kind", [Net, Literal])
def test_fake_model_on_a_gpu(kind):
    model, mode = kind().eval(), FakeTensorMode(allow_non_fake_inputs=True)
    expected = str(lower(Net().eval(), torch.ones(2, 4), output_type="stablehlo", weights="args").module)
    for module in model.modules():
        for name, parameter in module._parameters.items():
            module._parameters[name] = torch.nn.Parameter(fake(parameter, mode))
        for name, buffer in module._buffers.items():
            module._buffers[name] = fake(buffer, mode)
    x = fake(torch.ones(2, 4), mode)
    module = str(lower(model, x, output_type="stablehlo", weights="args").module)
    assert module == expected or (kind is Literal and module.count("fx_importer.weight") == 2)


def fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    return FakeTensor(mode, torch.empty_like(tensor, device="meta").detach(), CUDA)


def test_weights_on_a_device(tmp_path: Path):
    ran = run_script(Path(__file__).with_name("device_program.py"), tmp_path, {})
    assert ran.returncode == 0, ran.stderr

"""Bundles of `Lowered.save_bundle`, run by the file that is copied into them, as where jax and numpy are alone."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.gpu.run import loader
from fx_importer import UsageError, lower
from fx_importer.engines.xla.stablehlo_loader import taker
from tests.engines.test_engine_table import needs_xla

pytestmark = needs_xla


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("sum", torch.zeros(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("shift", torch.arange(3.0), persistent=False)

    def forward(self, x, more):
        y = self.layer(x) + self.shift
        self.sum += y.sum(0)
        self.count += 1
        return y, self.sum * more["k"], self.count + 0


def load(folder: Path, **options: Any) -> Any:
    return loader(folder).load(folder / "model.stablehlo", **options)


def bundle(folder: Path, model, *inputs, **options):
    lowered = lower(model, *inputs, output_type="stablehlo", weights="external", mutation="functional", **options)
    lowered.save_bundle(folder)
    return lowered


INPUTS = torch.randn(2, 4), torch.randn(3)


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counting]:
    folder, model = tmp_path_factory.mktemp("counting"), Counting()
    bundle(folder, model, INPUTS[0], {"k": INPUTS[1]})
    return folder, model


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_calls_equal_eager_and_keep_state(counting, kind: str):
    folder, model = counting
    program, eager = load(folder), Counting()
    eager.load_state_dict(model.state_dict())
    for _ in range(3):
        outputs = program(*(each if kind == "torch" else each.numpy() for each in INPUTS))
        for output, expected in zip(outputs, eager(INPUTS[0], {"k": INPUTS[1]}), strict=True):
            tensor = output if kind == "torch" else torch.from_numpy(np.array(output))
            torch.testing.assert_close(tensor, expected.detach())
    assert int(program.state["count"]) == 3
    program.reset({"sum": np.ones(3, np.float32), "count": np.array(7)})
    assert int(program(*INPUTS)[2]) == 8


def test_new_state_takes_the_memory_of_the_old(counting):
    program = load(counting[0])
    old = program.state["sum"]
    program(*INPUTS)
    assert old.is_deleted()


def test_an_array_of_numpy_may_change_after_the_call(counting):
    take = taker("x", (1 << 12,), np.dtype(np.float32), load(counting[0]).device)
    memory = np.zeros((1 << 12) + 16, np.float32)
    x = memory[-memory.ctypes.data % 64 // 4 :][: 1 << 12]  # aligned as jax reads it in place
    passed = take(x, False)
    x[:] = 1
    np.testing.assert_array_equal(passed, np.zeros_like(x))


class Signed(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count += 1
        return x * 2 if x.sum() > 0 else x * 3


@pytest.mark.filterwarnings("ignore::fx_importer.errors.AssumptionWarning")
def test_an_assumption_that_does_not_hold_is_an_error(tmp_path: Path):
    x = torch.ones(3)
    bundle(tmp_path, Signed(), x)
    program = load(tmp_path)
    torch.testing.assert_close(program(x), x * 2)
    with pytest.raises(ValueError, match="assumptions that do not hold: .*x.sum.*> 0"):
        program(-x)
    assert int(program.state["count"]) == 1
    torch.testing.assert_close(program(x), x * 2)


def test_new_values_of_inputs_come_before_the_outputs(tmp_path: Path):
    x = torch.ones(3)
    bundle(tmp_path, lambda x: x.add_(1) * 2, x.clone())
    new, output = load(tmp_path)(x)
    assert (x.tolist(), new.tolist(), output.tolist()) == ([1] * 3, [2] * 3, [4] * 3)


def test_calls_of_several_threads_share_the_state(counting):
    program = load(counting[0])
    (function,) = program._functions.values()
    execute = function._execute
    function._execute = lambda values: time.sleep(0.01) or execute(values)
    with ThreadPoolExecutor(4) as pool:
        counts = {int(done.result()[2]) for done in [pool.submit(program, *INPUTS) for _ in range(8)]}
    assert counts == set(range(1, 9))


def test_tensors_are_read_and_returned_in_place(counting):
    program = load(counting[0])
    passed: list[int] = []
    (function,) = program._functions.values()
    for at, take in enumerate(function._inputs):

        def counted(value, ordered, take=take):
            array = take(value, ordered)
            passed.append(array.unsafe_buffer_pointer() - value.data_ptr())
            return array

        function._inputs[at] = counted
    inputs = torch.empty(32)[:8].view(2, 4).copy_(INPUTS[0]), torch.empty(16)[:3].copy_(INPUTS[1])
    y, *_ = program(*inputs)
    assert passed == [0, 0]
    y.zero_()  # the memory is the caller's
    np.testing.assert_array_equal(y, np.zeros((2, 3)))


def test_a_second_function_shares_weights(tmp_path: Path):
    class Repeated(nn.Module):
        def __init__(self, layer, times):
            super().__init__()
            self.layer, self.times = layer, times

        def forward(self, x):
            for _ in range(self.times):
                x = self.layer(x)
            return x

    layer, x = nn.Linear(4, 4), torch.randn(2, 4)
    programs = {name: torch.export.export(Repeated(layer, at), (x,)) for at, name in enumerate(("once", "twice"), 1)}
    lowered = lower(programs, output_type="stablehlo", weights="external")
    lowered.save_bundle(tmp_path)
    program = load(tmp_path)
    torch.testing.assert_close(program["once"](x), layer(x).detach())
    torch.testing.assert_close(program["twice"](x), layer(layer(x)).detach())
    assert sorted(program.weights) == ["layer.bias", "layer.weight"]
    with pytest.raises(ValueError, match="no function 'thrice': there are once, twice"):
        program["thrice"]
    with pytest.raises(ValueError, match=r"several functions, program\[name\]"):
        program(x)


def test_weights_are_passed_instead_of_files(tmp_path: Path):
    model, x = nn.Linear(4, 3).bfloat16(), torch.randn(2, 4).bfloat16()
    lower(model, x, output_type="stablehlo", weights="external").save_bundle(tmp_path, weights=False)
    with pytest.raises(ValueError, match="names no file for 'weight': pass weights="):
        load(tmp_path)
    with pytest.raises(ValueError, match="no weight is passed for 'bias'"):
        load(tmp_path, weights={"weight": model.weight})
    with pytest.raises(ValueError, match=r"the weight 'weight' is torch.float32 \[3, 4\], and has to be bfloat16"):
        load(tmp_path, weights=model.float().state_dict())
    program = load(tmp_path, weights=model.bfloat16().state_dict())
    torch.testing.assert_close(program(x), model(x).detach(), rtol=0.02, atol=0.02)


def test_a_bundle_replaces_the_one_before(tmp_path: Path):
    x = torch.randn(2, 4)
    for model in (nn.Linear(4, 3), nn.Linear(4, 3)):
        bundle(tmp_path, model, x)
        torch.testing.assert_close(load(tmp_path)(x), model(x).detach())


@pytest.mark.parametrize(
    "inputs, message",
    [
        ((INPUTS[0],), "'main' takes 2 tensors, and 1 are passed"),
        ((INPUTS[0].double(), INPUTS[1]), r"x is torch.float64 \[2, 4\], and has to be float32 \[2, 4\]"),
        ((INPUTS[0].T, INPUTS[1]), r"x is torch.float32 \[4, 2\], and has to be float32 \[2, 4\]"),
        ((np.zeros((2, 4)), INPUTS[1]), r"x is float64 \[2, 4\], and has to be float32"),
        ((INPUTS[0].to("meta"), INPUTS[1]), r"x is on meta, the program on cpu: pass x.to\('cpu'\)"),
    ],
)
def test_other_inputs_are_refused(counting, inputs, message: str):
    with pytest.raises(ValueError, match=message):
        load(counting[0])(*inputs)


def test_a_bundle_for_another_platform(tmp_path: Path):
    lower(nn.ReLU(), torch.ones(3), output_type="stablehlo").save_bundle(tmp_path, platform="cuda")
    with pytest.raises(ValueError, match="the bundle is for 'cuda', not 'cpu': save it with platform='cpu'"):
        load(tmp_path)


@pytest.mark.parametrize(
    "device, message",
    [
        (
            "nothing",
            r"jax has no platform 'nothing' here: .*pip install 'jax\[cuda13\]' for 'cuda', with",
        ),
        ("cpu:99", "there is no device 'cpu:99': jax has"),
        ("cpu:x", "'cpu:x' names no device"),
    ],
)
def test_devices_that_are_not_there(counting, device: str, message: str):
    with pytest.raises(ValueError, match=message):
        loader(counting[0]).device_named(device)


def test_files_that_do_not_fit(tmp_path: Path, counting):
    folder, _ = counting
    for path in filter(Path.is_file, folder.iterdir()):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights, manifest = tmp_path / "model.safetensors", tmp_path / "model.manifest.json"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(ValueError, match="model.safetensors' is too short for the weight"):
        load(tmp_path)
    weights.unlink()
    with pytest.raises(ValueError, match="there is no file '.*model.safetensors', which has the weight"):
        load(tmp_path)
    facts = json.loads(manifest.read_text())
    for one in facts["weights"].values():
        one["file"]["path"] = "../elsewhere"
    manifest.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="outside of '.*': pass weights="):
        load(tmp_path)
    manifest.write_text(json.dumps(facts | {"format": 2}))
    with pytest.raises(ValueError, match="the manifest is of another format"):
        load(tmp_path)
    manifest.unlink()
    with pytest.raises(ValueError, match=re.escape(str(manifest))):
        load(tmp_path)


def test_memory_that_does_not_suffice(counting, monkeypatch: pytest.MonkeyPatch):
    class Device:
        def memory_stats(self):
            return {"bytes_limit": 100, "bytes_in_use": 60}

        def __str__(self):
            return "cuda:0"

    with pytest.raises(ValueError, match="the weights take 41 bytes, and the device cuda:0 has 40 left"):
        loader(counting[0]).check_memory(Device(), 41, "the weights")
    loader(counting[0]).check_memory(Device(), 40, "the weights")


def test_sizes_that_are_not_known(tmp_path: Path):
    batch = torch.export.Dim("batch", min=2, max=9)
    bundle(tmp_path, nn.ReLU(), torch.ones(4, 3), dynamic_shapes=({0: batch},))
    with pytest.raises(ValueError, match="'main' takes any sizes of .*: lower the model with the sizes to run"):
        load(tmp_path)


def test_what_is_no_bundle(tmp_path: Path):
    with pytest.raises(UsageError, match="a bundle holds StableHLO, but the module is tosa"):
        lower(nn.ReLU(), torch.ones(2), output_type="tosa").save_bundle(tmp_path)
    with pytest.raises(UsageError, match="lower with weights='external'"):
        lower(nn.Linear(2, 2), torch.ones(2), output_type="stablehlo", weights="inline").save_bundle(tmp_path)


def test_views_without_rows_in_order(tmp_path: Path):
    x, z = torch.randn(4, 2).T, torch.randn(3, dtype=torch.complex64).conj()
    lower(lambda x, z: (x * 2, z * 2), x, z, output_type="stablehlo", weights="external").save_bundle(tmp_path)
    for output, expected in zip(load(tmp_path)(x, z), (x * 2, z * 2), strict=True):
        torch.testing.assert_close(output, expected)

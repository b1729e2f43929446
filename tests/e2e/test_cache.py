"""Cached lowerings: equal modules, with the weights of the model at hand, and no errors of the cache."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fx_importer
from fx_importer import Lowered
from fx_importer.caching.disk_store import Store
from fx_importer.diagnostics.remarks import WeightsRead
from fx_importer.manifest import Manifest
from testing.zoo import ZOO
from tests.engines.test_engine_table import needs_tosa
from tests.running import run_script

pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def text(lowered: Lowered) -> str:
    return lowered.module.operation.get_asm(enable_debug_info=True)


def remarks(lowered: Lowered) -> list[str]:
    return [remark for stage in lowered.trace.stages for remark in stage.remarks]


def is_hit(lowered: Lowered) -> bool:
    return [stage.name for stage in lowered.trace.stages] == ["frontend", "cache"]


class Net(nn.Module):
    """Weights of every kind: transposed, reshaped, splat, buffers of floats and of integers, tied, bfloat16."""

    def __init__(self, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 4, 3)
        self.depthwise = nn.Conv1d(4, 4, 2, groups=4)
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 6, bias=False)
        self.tied = nn.Linear(4, 6, bias=False)
        self.tied.weight = self.linear.weight
        self.narrow = nn.Parameter(torch.rand(6).bfloat16())
        self.register_buffer("scale", torch.arange(6.0))
        self.register_buffer("order", torch.tensor([5, 3, 1, 0, 2, 4]))

    def forward(self, x):
        x = self.depthwise(self.conv(x).flatten(2))
        x = self.norm(x.transpose(1, 2))
        return (self.linear(x) + self.tied(x) * self.narrow.float() + self.scale)[..., self.order]


X = torch.linspace(-1, 1, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6)
OUTPUT_TYPES = ["raw", "torch", "linalg", "tosa", "stablehlo"]
BACKENDS = {"linalg": "jit", "tosa": "tosa_reference", "stablehlo": "stablehlo"}
RUN = ["linalg", pytest.param("tosa", marks=needs_tosa), "stablehlo"]


@pytest.mark.slow_rows("^(raw|torch)$")
@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
def test_cached_module_is_equal(output_type: str):
    program = torch.export.export(Net(0), (X,))
    without = fx_importer.lower(program, output_type=output_type, cache=False)
    miss, hit = (fx_importer.lower(program, output_type=output_type) for _ in range(2))
    assert remarks(miss)[-1].startswith("kept in")
    assert remarks(hit)[-1].startswith("taken from")
    assert is_hit(hit)
    assert text(without) == text(miss) == text(hit)
    assert without.manifest == miss.manifest == hit.manifest
    assert list(hit.programs) == ["main"]
    assert str(hit.program.graph) == str(miss.program.graph)


@pytest.mark.slow_rows("^tosa$", "^stablehlo$")
@pytest.mark.parametrize("output_type", RUN)
def test_hit_with_other_weights(output_type: str):
    """An entry is valid for other parameters of the same types; the module has the model's own."""
    first, second = Net(0).eval(), Net(1).eval()
    assert not is_hit(fx_importer.lower(first, X, output_type=output_type, fold=False))
    lowered = fx_importer.lower(second, X, output_type=output_type, fold=False)
    assert is_hit(lowered)
    torch.testing.assert_close(lowered.run(X), second(X))
    assert not torch.allclose(second(X), first(X))
    assert lowered.verify(X, backends=[BACKENDS[output_type]]).passed
    assert lowered.bisect(X) is None


def test_miss_with_other_buffers():
    first, second = Net(0), Net(0)
    second.order = torch.tensor([4, 2, 0, 1, 3, 5])
    fx_importer.lower(first, X, output_type="linalg")
    lowered = fx_importer.lower(second, X, output_type="linalg")
    assert not is_hit(lowered)
    torch.testing.assert_close(lowered.run(X), second(X))


def test_weights_alias_the_model():
    model = nn.Linear(3, 3)
    fx_importer.lower(model, torch.ones(1, 3), output_type="linalg")
    lowered = fx_importer.lower(model, torch.ones(1, 3), output_type="linalg")
    assert is_hit(lowered)
    with torch.no_grad():
        model.weight.fill_(2.0)
        model.bias.fill_(1.0)
    torch.testing.assert_close(lowered.run(torch.ones(1, 3)), torch.full((1, 3), 7.0))


@pytest.mark.slow_rows("^lstm-stablehlo$", unless="bert_small-linalg|lstm-stablehlo")
@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
@pytest.mark.parametrize("name", ["bert_small", "mamba_small", "resnet_small", "swin_small", "lstm"])
def test_entries_are_independent_of_parameter_values(
    name: str, output_type: str, directory: Path, monkeypatch: pytest.MonkeyPatch
):
    """With other parameters in the same program, the entry is equal: no pass reads those that it does not name."""
    model, args, kwargs = ZOO[name].build()
    program = torch.export.export(model, args, kwargs)
    put: list[tuple[str, bytes]] = []
    monkeypatch.setattr(Store, "put", lambda self, key, data: put.append((key, data)) or True)
    lowered = fx_importer.lower(program, output_type=output_type)
    read = {name for remark in remarks(lowered) if isinstance(remark, WeightsRead) for name in remark.names}
    with torch.no_grad():
        for weight, each in program.named_parameters():
            if weight not in read and each.is_floating_point() and each.std() > 0:
                each.copy_(torch.rand_like(each) - 3)
    fx_importer.lower(program, output_type=output_type)
    half = len(put) // 2
    assert put[:half] == put[half:]


def test_state_starts_from_the_models_state():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    lowered = [fx_importer.lower(Counts(), X, output_type="linalg", mutation="functional") for _ in range(2)]
    assert is_hit(lowered[1])
    torch.testing.assert_close(lowered[1].run(X), X)
    torch.testing.assert_close(lowered[1].run(X), 2 * X)


def test_dynamic_shapes():
    batch = torch.export.Dim("batch")
    model = nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1))
    lowered = [
        fx_importer.lower(model, torch.ones(2, 3), output_type="linalg", dynamic_shapes=({0: batch},)) for _ in range(2)
    ]
    assert is_hit(lowered[1])
    torch.testing.assert_close(lowered[1].run(torch.ones(5, 3)), model(torch.ones(5, 3)))


def test_several_entry_points():
    model = nn.Linear(3, 3)
    programs = {
        "one": torch.export.export(model, (torch.ones(1, 3),)),
        "two": torch.export.export(model, (X[0, 0, :3, :3],)),
    }
    lowered = [fx_importer.lower(programs, output_type="linalg") for _ in range(2)]
    assert is_hit(lowered[1])
    assert text(lowered[0]) == text(lowered[1])


def test_isolated_lowering():
    lowered = [fx_importer.lower(Net(0), X, output_type="tosa", isolate=isolate) for isolate in (True, False)]
    assert is_hit(lowered[1])
    assert text(lowered[0]) == text(lowered[1])


@pytest.mark.parametrize(
    "damaged",
    [lambda header, bytecode: b"{}\n" + bytecode, lambda header, bytecode: header + b"\n" + bytecode[:-9]],
    ids=["manifest", "module"],
)
def test_unreadable_entry_is_a_miss(monkeypatch: pytest.MonkeyPatch, damaged: Any):
    model = nn.Linear(3, 3)
    fx_importer.lower(model, torch.ones(1, 3), output_type="linalg")
    get = Store.get

    def get_damaged(self: Store, key: str) -> bytes | None:
        header, _, bytecode = (get(self, key) or b"").partition(b"\n")
        return damaged(header, bytecode)

    monkeypatch.setattr(Store, "get", get_damaged)
    lowered = fx_importer.lower(model, torch.ones(1, 3), output_type="linalg")
    assert not is_hit(lowered)
    torch.testing.assert_close(lowered.run(torch.ones(1, 3)), model(torch.ones(1, 3)))


def test_cache_errors_are_remarks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Manifest, "to_json", lambda self: 1 / 0)
    lowered = fx_importer.lower(nn.Linear(3, 3), torch.ones(1, 3), output_type="linalg")
    assert remarks(lowered)[-1] == "not kept: ZeroDivisionError: division by zero"
    monkeypatch.setattr("fx_importer.compiler.caching.cache_entry.key_of", lambda *_: 1 / 0)
    lowered = fx_importer.lower(nn.Linear(3, 3), torch.ones(1, 3), output_type="linalg")
    assert remarks(lowered) == ["not cached: ZeroDivisionError: division by zero"]


def test_failures_are_the_same_with_cache(directory: Path):
    class Fails(nn.Module):
        def forward(self, x):
            return torch.nonzero(x).repeat(2, 1)

    errors: list[str] = []
    for cache in (False, True):
        with pytest.raises(fx_importer.StageFailed) as raised:
            fx_importer.lower(Fails(), X, output_type="tosa", cache=cache)
        assert raised.value.report is not None
        assert raised.value.causes
        errors.append(str(raised.value).replace(str(raised.value.report), "REPORT"))
    assert errors[0] == errors[1]
    assert not directory.exists()


def test_off_by_default(monkeypatch: pytest.MonkeyPatch, directory: Path):
    monkeypatch.delenv("FX_IMPORTER_CACHE_DIR")
    lowered = fx_importer.lower(nn.ReLU(), X)
    assert "cache" not in [stage.name for stage in lowered.trace.stages]
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", "")  # like an unset variable
    lowered = fx_importer.lower(nn.ReLU(), X)
    assert "cache" not in [stage.name for stage in lowered.trace.stages]
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(directory))
    fx_importer.lower(nn.ReLU(), X, cache=False)
    assert not directory.exists()
    own = fx_importer.FxImporter()
    fx_importer.lower(nn.ReLU(), X, fx_importer=own)
    assert "func.func @main" in str(own.module)
    assert not directory.exists()


SCRIPT = """
import torch, fx_importer
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
x = torch.rand(2, 8)
for _ in range(5):
    lowered = fx_importer.lower(model, x, output_type="linalg")
    torch.testing.assert_close(lowered.run(x), model(x))
    print(lowered.trace.stages[-1].name)
"""


def test_two_concurrent_processes(tmp_path: Path, directory: Path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        (folder / "script.py").write_text(SCRIPT)
    environment = {"FX_IMPORTER_CACHE_DIR": str(directory)}
    with ThreadPoolExecutor() as pool:
        ran = list(pool.map(lambda folder: run_script(folder / "script.py", folder, environment), folders))
    for each in ran:
        assert each.returncode == 0, each.stderr
        assert each.stdout.split()[1:] == ["cache"] * 4

"""Compiled code in the cache: another process loads what this one compiled, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fx_importer
from fx_importer.engines import JitBackend
from fx_importer.engines.jit.compiled_cache import Entry
from fx_importer.engines.jit.object_code import SUPPORTED, ObjectCode

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="only object files of Linux on x86-64 are loaded")

PROGRAM = """
import torch
from torch import nn
import fx_importer
from fx_importer.engines.jit import engine_code
torch.manual_seed({seed})

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.table = nn.Linear(64, 64, bias=False), nn.Embedding(30, 64)
        self.convolution = nn.Conv2d(3, 16, 3, bias=False)

    def forward(self, x, i, image):
        return torch.tanh(self.linear(x)) @ self.table(i).T, self.convolution(image)

model = Model().eval()
inputs = torch.randn(40, 64), torch.arange(20), torch.randn(1, 3, 20, 20)
lowered = fx_importer.lower(model, *inputs, output_type="{output_type}")
compiled = []
generate = engine_code.ExecutionEngine
engine_code.ExecutionEngine = lambda *args, **options: compiled.append(1) or generate(*args, **options)
run = lowered.caller(backend="jit")
for found, expected in zip(run(*inputs), model(*inputs)):
    torch.testing.assert_close(found, expected)
try:
    run(inputs[0], inputs[1] + 20, inputs[2])
except fx_importer.UsageError as error:
    print(len(compiled), error)
else:  # StableHLO reads the last row
    print(len(compiled))
"""


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", pytest.param("stablehlo", marks=pytest.mark.slow)])
def test_another_process_compiles_nothing(output_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path))
    found: list[str] = []
    for seed in (0, 1):  # the code holds for other weights
        program = PROGRAM.format(seed=seed, output_type=output_type)
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        found.append(ended.stdout)
    assert [each[0] for each in found] == ["1", "0"]
    assert found[0][1:] == found[1][1:]
    assert ("'main' stopped: " in found[1]) == (output_type == "linalg-on-tensors")


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path))
    kept: list[int] = []
    for scale, size, level in ((2.0, 3, 2), (5.0, 3, 2), (2.0, 4, 2), (2.0, 3, 3), (2.0, 3, 2)):
        x = torch.ones(size)
        lowered = fx_importer.lower(lambda x, scale=scale: x * scale, x, output_type="linalg", cache=False)
        (found,) = JitBackend(optimization=level).load(lowered.module)(x)
        assert found.tolist() == [scale] * size
        kept.append(len([*tmp_path.iterdir()]))
    assert kept == [1, 2, 3, 4, 4]


def test_what_cannot_be_loaded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path))
    objects: list[bytes] = []
    monkeypatch.setattr(Entry, "write", lambda self, program, code: objects.append(code))
    lowered = fx_importer.lower(torch.sin, torch.ones(3), output_type="linalg", cache=False)
    JitBackend().load(lowered.module)
    (data,) = objects
    assert ObjectCode(data, {})["_mlir_ciface_main"]
    for damaged in (
        b"",
        data[:40],
        data[:-100],
        data.replace(b"\x7fELF\x02", b"\x7fELF\x01"),
        data.replace(b"sinf", b"sina"),
    ):
        with pytest.raises(ValueError, match="object file|missing|damaged"):
            ObjectCode(damaged, {})

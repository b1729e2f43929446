"""Twenty exports in one process take no more memory than ten: contexts, weights, graphs and snapshots are freed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.running import run_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

_MODELS = {
    "exported anew, with new weights": """
def call():
    model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 512)).eval()
    lower(model, torch.ones(2, 512), output_type=sys.argv[1])
""",
    "one program, lowered again": """
layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True).eval()
program = torch.export.export(layer, (torch.ones(2, 8, 64),))

def call():
    lower(program, output_type=sys.argv[1])
""",
}

_SCRIPT = """
import ctypes, gc, sys
import torch
from torch import nn
from fx_importer import lower

sys.argv.append("{output_type}")
{model}

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:"))

for number in range(1, {calls} + 1):
    call()
    if number in (10, {calls}):
        print(resident())
"""


@pytest.mark.slow_rows(unless="anew.*-linalg")
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
@pytest.mark.parametrize("model", _MODELS)
def test_memory_does_not_grow(model, output_type, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT.format(model=_MODELS[model], output_type=output_type, calls=20))
    ran = run_script(script, tmp_path, {})
    assert ran.returncode == 0, ran.stderr
    ten, twenty = map(int, ran.stdout.split())
    # torch.export's own caches grow by a megabyte. Weights that were kept would be 40 MB, and contexts as much.
    assert twenty - ten < 5, f"{ten} MB after ten, {twenty} MB after twenty"

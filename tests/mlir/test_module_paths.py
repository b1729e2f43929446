"""Locations as paths of submodules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fx_importer import load, lower
from fx_importer.errors import UsageError


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.mix(x))


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Inner(), Inner()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("output_type", ["tosa", "stablehlo"])
def test_saved_module_paths(output_type: str, tmp_path: Path):
    if output_type == "tosa":
        pytest.importorskip("tosa_reference_model", reason="the extra 'tosa' is not installed")
    x = torch.randn(2, 4)
    model = Outer()
    lowered = lower(model, x, output_type=output_type)
    before = lowered.module.operation.get_asm(enable_debug_info=True)
    lowered.save(tmp_path / "m.mlirbc", module_paths=True)
    assert lowered.module.operation.get_asm(enable_debug_info=True) == before
    again = load(tmp_path / "m.mlirbc", trust=True)
    names = set(re.findall(r'loc\("([^"]*/[^"]*)"\)', again.module.operation.get_asm(enable_debug_info=True)))
    product = "tosa.matmul" if output_type == "tosa" else "stablehlo.dot_general"
    assert {f"blocks/0/mix/{product}", f"blocks/1/mix/{product}"} <= names
    assert not any(".py" in each for each in names)
    torch.testing.assert_close(again.run(x), model(x))


def test_artifacts_have_none(tmp_path: Path):
    lowered = lower(Outer(), torch.randn(2, 4), output_type="stablehlo")
    with pytest.raises(UsageError, match=r"module paths to a \.mlir or \.mlirbc file"):
        lowered.save(tmp_path / "m.stablehlo", module_paths=True)
    assert not (tmp_path / "m.stablehlo").exists()

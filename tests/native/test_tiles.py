"""Contractions of float32 in vector registers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from fx_importer import lower
from fx_importer.mlir.functions import dialects_of
from fx_importer.native.buffers import to_buffers
from fx_importer.native.targets import target_named
from testing.native_calls import NativeCaller


def test_attention_multiplies_in_tiles_without_divisions_and_checks() -> None:
    q = torch.randn(1, 2, 24, 16)  # rows that tiles divide
    lowered = lower(functional.scaled_dot_product_attention, q, q + 1, q - 1, output_type="linalg-on-tensors")
    assert "linalg" in dialects_of(lowered.linked)
    text = str(to_buffers(lowered.linked, "main", target_named("x86-64-v3")))
    loops = re.findall(r"scf\.for [^\n]* -> \(vector<8xf32>.*?scf\.yield", text, re.DOTALL)
    assert len(loops) == 2  # the keys are transposed first, and the probabilities divided
    assert not any("divf" in loop or "cf.assert" in loop for loop in loops)


def test_operations_on_scalars_have_no_loops_to_tile() -> None:
    lowered = lower(
        lambda x, y: x.sum() * y.sum() - y.amax(), torch.ones(4), torch.ones(4), output_type="linalg-on-tensors"
    )
    assert "memref.store" in str(to_buffers(lowered.linked, "main", target_named("x86-64-v3")))


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)], ids=str)
def test_columns_of_deep_matmuls_are_copied_to_one_buffer(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1040, 523), torch.nn.ReLU(), torch.nn.Linear(523, 8)).to(dtype)
    x = torch.randn(2, 37, 1040, dtype=dtype)
    lowered = lower(model, x, output_type="linalg-on-tensors")
    assert str(to_buffers(lowered.linked, "main", target_named("x86-64-v3"))).count("memref.alloca") == 1
    (found,) = NativeCaller(lowered, lowered.build(tmp_path / "net"))(x)
    torch.testing.assert_close(found, model(x))


def test_panels_have_parts_of_the_loops_of_convolutions(tmp_path: Path) -> None:
    """Kernels of which a panel has all, or a part of the channels; tiles of rows with a rest, strides, and groups."""
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 72, 5, 2), nn.Conv2d(72, 136, 3), nn.Conv2d(136, 152, (3, 2), groups=2))
    x = torch.randn(2, 3, 23, 21)
    lowered = lower(model, x, output_type="linalg-on-tensors")
    text = str(to_buffers(lowered.linked, "main", target_named("x86-64-v3")))
    assert len(re.findall(r"vector\.store .* memref<8192xf32>", text)) > 3
    assert text.count("memref.prefetch") > 3  # of the next panel, while tiles of this one are computed
    (result,) = NativeCaller(lowered, lowered.build(tmp_path / "net"))(x)
    torch.testing.assert_close(result, model(x))

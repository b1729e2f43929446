"""Weights of convolutions and products, which kernels read, or pack, from the memory of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fx_importer import lower
from fx_importer.engines.jit import jit_backend, library_kernels
from fx_importer.errors import UsageError
from fx_importer.rewrites.llvm import library_calls

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN, which packs weights"
)

MODELS = {
    "convolution": (lambda: nn.Conv2d(16, 24, 3, padding=1), (1, 16, 20, 20)),
    "strides and dilations": (lambda: nn.Conv2d(16, 24, (3, 2), (2, 1), (0, 1), (1, 2)), (2, 16, 20, 19)),
    "depthwise": (lambda: nn.Conv2d(32, 32, 5, padding=2, groups=32, bias=False), (1, 32, 20, 20)),
    "one channel for two": (lambda: nn.Conv2d(16, 32, 5, groups=16), (1, 16, 20, 20)),
    "groups": (lambda: nn.Conv2d(16, 32, 3, groups=4), (1, 16, 20, 20)),
    "one channel": (lambda: nn.Conv2d(1, 64, 5), (1, 1, 20, 20)),
    "one filter": (lambda: nn.Conv2d(64, 1, 3), (1, 64, 20, 20)),
    "pixels": (lambda: nn.Conv2d(256, 512, 1), (1, 256, 8, 8)),
    "every other pixel": (lambda: nn.Conv2d(256, 512, 1, 2), (1, 256, 8, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(16, 24, 3, 2), (1, 16, 12, 12)),
    "one axis": (lambda: nn.Conv1d(16, 24, 5), (1, 16, 100)),
    "three axes": (lambda: nn.Conv3d(4, 8, 3), (1, 4, 10, 10, 10)),
}


@pytest.fixture
def buffers(monkeypatch) -> list[np.ndarray]:
    """The memory that compiled functions read weights from, of all that are loaded."""
    found: list[np.ndarray] = []
    table = jit_backend.weight_table

    def recorded(*arguments: Any):
        result = table(*arguments)
        found.extend(result[1])
        return result

    monkeypatch.setattr(jit_backend, "weight_table", recorded)
    return found


@pytest.fixture
def packed(monkeypatch) -> list[torch.Tensor]:
    """The weights that were packed."""
    found: list[torch.Tensor] = []
    reorder = library_kernels._PACK_CONVOLUTION

    def recorded(weight: torch.Tensor, *how: Any) -> torch.Tensor:
        found.append(weight)
        return reorder(weight, *how)

    monkeypatch.setattr(library_kernels, "_PACK_CONVOLUTION", recorded)
    return found


def _compare(found: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 1e-4 if found.dtype.itemsize > 2 else 5e-2
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


CASES = [(name, torch.float32) for name in MODELS if name != "depthwise"]
CASES += [("convolution", torch.float64), ("convolution", torch.bfloat16), ("depthwise", torch.bfloat16)]


@torch.no_grad()
@pytest.mark.parametrize("name, dtype", CASES, ids=str)
def test_compiled_functions_hold_no_weight_in_another_layout(name, dtype, buffers, packed):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    module, x = make().to(dtype), torch.randn(shape, dtype=dtype)
    caller = lower(module, x, output_type="linalg-on-tensors").caller()
    _compare(caller(x), module(x))
    there = module.weight.data_ptr()
    assert {each.ctypes.data for each in buffers if each.nbytes >= module.weight.nbytes} == {there}
    assert {each.data_ptr() for each in packed} <= {there}


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_depthwise_convolutions_are_compiled(packed, dtype):
    """Tiles divide neither channels nor pixels; a pixel that is not a number reaches its windows only."""
    torch.manual_seed(0)
    wide = nn.Conv2d(37, 37, 5, padding=2, groups=37)
    far = nn.Conv2d(37, 37, (3, 2), (2, 1), (1, 0), (1, 3), groups=37, bias=False)
    model, x = nn.Sequential(wide, nn.Hardswish(), far).to(dtype), torch.randn(3, 37, 21, 19, dtype=dtype)
    x[1, 36, 20, 3] = float("nan")
    caller = lower(model, x, output_type="linalg-on-tensors").caller()
    threads = torch.get_num_threads()
    try:
        for torch_threads in (1, 2):
            torch.set_num_threads(torch_threads)
            torch.testing.assert_close(caller(x), model(x), rtol=1e-4, atol=1e-4, equal_nan=True)
    finally:
        torch.set_num_threads(threads)
    assert torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512") or not packed


@needs_onednn
@torch.no_grad()
def test_weight_is_packed_once_for_images_at_any_address(packed):
    """An image that is transposed by the caller is read, and its result written, where it is."""
    torch.manual_seed(0)
    module = nn.Conv2d(16, 24, 3)
    images = [torch.randn(1, 20, 20, 16) for _ in range(5)]

    def function(x):
        return module(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    caller = lower(function, images[0], output_type="linalg-on-tensors").caller()
    results = [caller(each) for each in images]
    for image, result in zip(images, results, strict=True):
        _compare(result, function(image))
    assert [each.data_ptr() for each in packed] == [module.weight.data_ptr()]


@needs_onednn
@torch.no_grad()
def test_two_convolutions_share_a_packed_weight(buffers, packed):
    """Also with other strides, for which oneDNN may choose another layout: it packs again."""
    torch.manual_seed(0)
    weight, x = torch.randn(16, 16, 3, 3) / 12, torch.randn(1, 16, 20, 20)

    def function(x):
        y = F.conv2d(F.conv2d(x, weight, padding=1).relu(), weight, padding=1)
        return F.conv2d(y, weight, stride=2)

    _compare(lower(function, x, output_type="linalg-on-tensors").run(x), function(x))
    assert [each.ctypes.data for each in buffers] == [weight.data_ptr()]
    assert [each.data_ptr() for each in packed] == [weight.data_ptr()] * 2


@needs_onednn
@torch.no_grad()
def test_other_uses_of_a_packed_weight(buffers, packed):
    torch.manual_seed(0)
    weight, x = torch.randn(16, 16, 3, 3), torch.randn(1, 16, 20, 20)

    def function(x):
        return (
            F.conv2d(x, weight),
            F.conv2d(x, weight.transpose(0, 1)),
            weight.permute(2, 3, 1, 0) * 2,
            weight + x[0, 0, 0, 0],
        )

    results = lower(function, x, output_type="linalg-on-tensors").run(x)
    for found, expected in zip(results, function(x), strict=True):
        _compare(found, expected)
    assert weight.data_ptr() in {each.ctypes.data for each in buffers}
    assert [each.data_ptr() for each in packed] == [weight.data_ptr()]


@torch.no_grad()
def test_weights_that_change(packed):
    """An argument is never packed; a change in place of a constant is an error."""
    torch.manual_seed(0)
    weight, x = torch.randn(16, 16, 3, 3), torch.randn(1, 16, 20, 20)
    caller = lower(lambda x, w: F.conv2d(x, w), x, weight, output_type="linalg-on-tensors").caller()
    module = nn.Conv2d(16, 16, 3)
    constant = lower(module, x, output_type="linalg-on-tensors").caller()
    argument = lower(module, x, output_type="linalg-on-tensors", weights="args").caller()
    _compare(constant(x), module(x))
    packed.clear()
    for _ in range(2):
        _compare(caller(x, weight), F.conv2d(x, weight))
        _compare(argument(x), module(x))
        weight.add_(1)
        module.weight.mul_(-2)
    assert packed == []
    with pytest.raises(UsageError, match="changed in place"):
        constant(x)


@pytest.mark.parametrize("rows, is_read_there", [(64, True), (16, False)])
def test_matrices_of_many_rows_are_read_where_they_are(buffers, rows, is_read_there):
    """Products with the transposition of a matrix: with few rows, it is worth a copy in the other layout."""
    torch.manual_seed(0)
    module, x = nn.Conv2d(256, 512, 1, bias=False), torch.randn(1, 256, 1, rows)
    _compare(lower(module, x, output_type="linalg-on-tensors").run(x), module(x).detach())
    assert (module.weight.data_ptr() in {each.ctypes.data for each in buffers}) == is_read_there


@needs_onednn
@torch.no_grad()
def test_products_of_known_rows_add_in_place(packed, monkeypatch):
    """Each weight is packed once for a number of rows; large ones of many rows are read where they are."""
    monkeypatch.setattr(library_calls, "smallest_onednn_work", lambda: 1 << 15)
    monkeypatch.setattr(library_kernels, "_SMALL_OF_MANY_ROWS", 64 * 96)
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 80, bias=False)).eval(), torch.randn(2, 70, 64)
    x[0, 3, 2] = float("nan")
    caller = lower(model, x, output_type="linalg-on-tensors").caller()
    for image in (x, x.flip(1)):
        torch.testing.assert_close(caller(image), model(image), rtol=1e-4, atol=1e-4, equal_nan=True)
    assert [tuple(each.shape) for each in packed] == [(96, 64, 1, 1)]

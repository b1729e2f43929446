"""Products and convolutions by PyTorch's kernels, loops on several threads, and functions as arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fx_importer import lower
from fx_importer.mlir.module_contents import copy_module
from fx_importer.rewrites.llvm import library_calls
from fx_importer.rewrites.llvm.blas_calls import routines
from fx_importer.rewrites.llvm.library_calls import outline_library_calls
from fx_importer.rewrites.llvm.library_functions import Convolution, LibraryFunction, library_functions_of

CASES = {
    "products": (lambda a, b: a @ b.mT, (7, 600), (500, 600)),
    "tiles of columns": (lambda a, b: a @ b, (5, 200), (200, 800)),
    "tiles of rows": (lambda a, b: a @ b, (800, 200), (200, 5)),
    "few rows": (lambda a, b: a @ b, (11, 100), (100, 208)),
    "few rows, added": (torch.addmm, (3, 208), (3, 100), (100, 208)),
    "rows of a weight": (F.linear, (3, 208), (101, 208)),
    "rows of a weight, added": (lambda c, a, b: torch.addmm(c, a, b.mT), (5, 101), (5, 208), (101, 208)),
    "batches": (torch.matmul, (4, 3, 40, 30), (4, 3, 30, 50)),
    "accumulation": (torch.addmm, (90, 110), (90, 100), (100, 110)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), (2, 3, 17, 19), (8, 3, 3, 3)),
    "bias": (lambda x, w, b: F.conv2d(x, w, b, dilation=2), (2, 3, 17, 19), (8, 3, 3, 3), (8,)),
    "groups": (lambda x, w: F.conv2d(x, w, groups=2), (1, 8, 20, 20), (6, 4, 3, 3)),
    "groups, bias": (lambda x, w, b: F.conv2d(x, w, b, groups=2), (2, 8, 20, 20), (6, 4, 3, 3), (6,)),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=16), (1, 16, 20, 20), (16, 1, 3, 3)),
    "one axis": (lambda x, w: F.conv1d(x, w), (2, 16, 60), (8, 16, 5)),
    "three axes": (lambda x, w: F.conv3d(x, w), (1, 3, 9, 9, 9), (4, 3, 2, 3, 2)),
}


def _arguments(shapes, dtype):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def _library_functions(lowered) -> dict[str, LibraryFunction]:
    module = copy_module(lowered.module.operation)
    outline_library_calls(module.operation)
    return library_functions_of(module)


@pytest.mark.slow_rows(
    r"^bias-torch\.float64$",
    r"^groups-torch\.float16$",
    r"^groups, bias-torch\.float(16|32|64)$",
    r"^groups-torch\.bfloat16$",
    r"^batches-torch\.float32$",
    r"^accumulation-torch\.float64$",
    r"^bias-torch\.float16$",
    r"^bias-torch\.bfloat16$",
    r"^one axis-torch\.float16$",
    r"^batches-torch\.float16$",
    r"^three axes-torch\.bfloat16$",
    r"^tiles of columns-torch\.float32$",
    r"^convolution-torch\.float16$",
    r"^groups-torch\.float32$",
    r"^one axis-torch\.bfloat16$",
    r"^tiles of columns-torch\.float16$",
    r"^one axis-torch\.float32$",
    r"^three axes-torch\.float32$",
    r"^bias-torch\.float32$",
    r"^depthwise-torch\.float32$",
    r"^tiles of rows-torch\.float32$",
    r"^three axes-torch\.float64$",
    r"^accumulation-torch\.float32$",
    r"^depthwise-torch\.float64$",
    r"^accumulation-torch\.float16$",
    r"^tiles of rows-torch\.float16$",
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_the_operations_do(name, dtype):
    function, *shapes = CASES[name]
    arguments = _arguments(shapes, dtype)
    lowered = lower(function, *arguments, output_type="linalg-on-tensors")
    assert _library_functions(lowered)
    tolerance = 1e-4 if dtype.itemsize > 2 else 2e-2
    torch.testing.assert_close(lowered.run(*arguments), function(*arguments), rtol=tolerance, atol=tolerance)


def test_products_of_two_element_types():
    a, b = _arguments([(60, 70), (70, 80)], torch.float32)
    lowered = lower(lambda a, b: (a @ b, a.double() @ b.double()), a, b, output_type="linalg-on-tensors")
    for found, wanted in zip(lowered.run(a, b), (a @ b, a.double() @ b.double()), strict=True):
        torch.testing.assert_close(found, wanted)


def test_the_program_may_have_the_name_of_a_kernel():
    (x,) = _arguments([(300, 300)], torch.float32)
    lowered = lower(torch.exp, x, output_type="linalg-on-tensors", func_name="parallel_main")
    torch.testing.assert_close(lowered.run(x), torch.exp(x))


def test_small_products_and_integers_are_loops():
    for arguments in (_arguments([(4, 4), (4, 4)], torch.float32), _arguments([(64, 64), (64, 64)], torch.int64)):
        lowered = lower(torch.mm, *arguments, output_type="linalg-on-tensors")
        assert not _library_functions(lowered)


def test_results_do_not_depend_on_the_number_of_threads():
    if not routines():
        pytest.skip("PyTorch is not linked with MKL, whose sums would depend on it")

    def f(x, w, v, u):
        return torch.softmax(F.gelu(x @ w) @ v, -1), (x * 2).sum(0), F.linear(x[:1], u)

    arguments = _arguments([(200, 3072), (3072, 768), (768, 300), (301, 3072)], torch.float32)
    lowered = lower(f, *arguments, output_type="linalg-on-tensors")
    caller = lowered.caller()
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(caller(*arguments))
    finally:
        torch.set_num_threads(threads)
    for each in results[1:]:
        assert all(map(torch.equal, each, results[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("sizes", "kernel", "options"),
    [
        ((2, 8, 9, 10), (8, 6, 4, 3), {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2)}),
        ((1, 8, 9, 9), (8, 6, 3, 3), {"dilation": 2, "padding": 1, "stride": 2}),
        ((1, 8, 9, 9), (8, 6, 3, 3), {}),
        ((2, 8, 60), (8, 6, 5), {"stride": 4, "padding": 2, "output_padding": 1}),
        ((1, 4, 5, 6, 7), (4, 6, 3, 3, 3), {"stride": 2, "padding": 1}),
    ],
)
def test_transposed_convolutions(sizes, kernel, options, dtype):
    convolve: Any = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}[len(sizes)]
    taken = _arguments((sizes, kernel, kernel[1:2]), dtype)[: 2 if dtype is torch.bfloat16 else 3]
    lowered = lower(lambda *taken: convolve(*taken, **options), *taken, output_type="linalg-on-tensors")
    (found,) = _library_functions(lowered).values()
    assert isinstance(found.kernel, Convolution)
    assert found.kernel.output_padding is not None
    tolerance = 1e-4 if dtype.itemsize > 2 else 2e-2
    torch.testing.assert_close(lowered.run(*taken), convolve(*taken, **options), rtol=tolerance, atol=tolerance)


def test_more_padding_than_a_transposed_convolution_has_is_a_convolution():
    x, w = _arguments(((1, 8, 9, 9), (8, 6, 3, 3)), torch.float32)
    lowered = lower(lambda x, w: F.conv_transpose2d(x, w, padding=3), x, w, output_type="linalg-on-tensors")
    torch.testing.assert_close(lowered.run(x, w), F.conv_transpose2d(x, w, padding=3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 7, 32])
def test_products_of_few_rows_and_a_weight(rows):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(256, 1024).eval(), torch.randn(rows, 256)
    caller = lower(model, x, output_type="linalg").caller()
    found = _on_threads(1, caller, x)
    torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)
    assert torch.equal(_on_threads(2, caller, x), found)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 768, 1029), (3, 768, 1024), (8, 256, 512)])
def test_products_of_bfloat16_are_rounded_once(rows, inner, columns):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(inner, columns, bias=False).eval().bfloat16(), torch.randn(rows, inner).bfloat16()
    found = lower(model, x, output_type="linalg").run(x)
    exact = (x.double() @ model.weight.mT.double()).detach()
    bound = exact.abs() * 2**-8 + 1e-5  # half a unit in the last place, and the error of sums in float32
    assert bool(((found.double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_dynamic_sizes(rows):
    x, w = _arguments([(20, 64), (64, 128)], torch.float32)
    shapes = ({0: torch.export.Dim("rows", min=0)}, None)
    lowered = lower(lambda x, w: torch.tanh(x @ w), x, w, output_type="linalg-on-tensors", dynamic_shapes=shapes)
    given = torch.randn(rows, 64)
    torch.testing.assert_close(lowered.run(given, w), torch.tanh(given @ w))


@pytest.mark.parametrize("mode", ["inference", "autocast"])
def test_modes_of_the_caller_change_nothing(mode):
    arguments = _arguments([(2, 3, 17, 19), (8, 3, 3, 3)], torch.float32)
    lowered = lower(lambda x, w: F.conv2d(x, w), *arguments, output_type="linalg-on-tensors")
    caller = lowered.caller()
    with torch.inference_mode() if mode == "inference" else torch.autocast("cpu"):
        caller(*arguments)
        within = caller(*arguments)
    assert torch.equal(within.clone(), caller(*arguments))


@pytest.mark.parametrize("function", [torch.exp, torch.tanh, torch.erf])
def test_functions_of_large_tensors_are_accurate(function):
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 3e38, -3e38]
    x = torch.cat([torch.tensor(special), torch.linspace(-110, 90, 1 << 17), torch.linspace(-3, 3, 1 << 17)])
    result = lower(function, x, output_type="linalg-on-tensors").run(x)
    exact = function(x.double())
    torch.testing.assert_close(result, exact.float(), rtol=3e-7, atol=1e-45, equal_nan=True)
    assert torch.equal(torch.signbit(result[:4]), torch.signbit(exact[:4]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_functions_of_16_bits_are_rounded_from_float32(dtype):
    x = torch.cat([torch.linspace(-9, 9, 1 << 17), torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0])])
    lowered = lower(torch.tanh, x.to(dtype), output_type="linalg-on-tensors")
    found, exact = lowered.run(x.to(dtype)), torch.tanh(x.to(dtype).double()).to(dtype)
    torch.testing.assert_close(found, exact, rtol=torch.finfo(dtype).eps, atol=0, equal_nan=True)
    assert (found == exact)[:-2].float().mean() > 0.999  # errors of float32 that cross the middle of two are rare


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN")
@pytest.mark.parametrize("rows", [9, 80])
def test_products_by_onednn(monkeypatch, rows):
    monkeypatch.setattr(library_calls, "smallest_onednn_work", lambda: 1 << 20)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(200, 800), torch.nn.GELU(), torch.nn.Linear(800, 200)).eval()
    x, y = torch.randn(rows, 200), torch.randn(800, 200)

    def function(x, y):
        return model(x), torch.addmm(x, x @ y.T, y), x.T @ x

    shapes = {"x": {0: torch.export.Dim("rows", min=0)}, "y": None}
    caller = lower(function, x, y, output_type="linalg", dynamic_shapes=shapes).caller()
    for given in (x, x[:3], x[:0]):
        torch.testing.assert_close(caller(given, y), function(given, y), rtol=1e-3, atol=1e-3)
        again = _on_threads(2, caller, given, y)
        assert [torch.equal(a, b) for a, b in zip(caller(given, y), again, strict=True)] == [True] * 3


def test_products_of_slices_of_dynamic_strides():
    def function(x, y):
        rows = x[:, :2:2]
        return rows.sort(dim=0).indices, rows @ y

    x, y = torch.randn(4, 2, 4), torch.randn(1, 4, 2)
    sizes = dict.fromkeys(range(3), torch.export.Dim.AUTO)
    lowered = lower(function, x, y, output_type="linalg", dynamic_shapes=(sizes, {2: torch.export.Dim.AUTO}))
    torch.testing.assert_close(lowered.run(x, y), function(x, y))


def _on_threads(count, function, *args):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return function(*args)
    finally:
        torch.set_num_threads(before)

"""Matmuls of native code by a CBLAS: here a small one in C, which counts its calls and checks its arguments."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch.export import Dim, export

from fx_importer import UsageError, lower
from fx_importer.cli.native.build import build_model
from fx_importer.native.buffers import to_buffers
from fx_importer.native.build import check_build
from fx_importer.native.cblas import Cblas, find_cblas
from fx_importer.native.targets import target_named
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.process.optional_packages import is_installed
from testing.native_calls import NativeCaller, aligned_memory
from tests.native.c_programs import COMPILER, STRICT, Program

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
needs_toolchain = pytest.mark.skipif(not is_installed("ziglang"), reason="the extra 'native' is not installed")

_GEMM = """
#include <stdint.h>
#include <stdlib.h>
#ifndef INTEGER
#define INTEGER int
#endif
int calls;
#define GEMM(NAME, T) \\
  void NAME(int order, int ta, int tb, INTEGER m, INTEGER n, INTEGER k, T alpha, const T *a, INTEGER lda, \\
            const T *b, INTEGER ldb, T beta, T *c, INTEGER ldc) { \\
    ++calls; \\
    if (order != 101 || (ta != 111 && ta != 112) || (tb != 111 && tb != 112) || m < 0 || n < 0 || k < 0) abort(); \\
    if (lda < (ta == 111 ? k : m) || ldb < (tb == 111 ? n : k) || ldc < n || lda < 1 || ldb < 1 || ldc < 1) abort(); \\
    for (INTEGER i = 0; i < m; ++i) \\
      for (INTEGER j = 0; j < n; ++j) { \\
        T sum = 0; \\
        for (INTEGER p = 0; p < k; ++p) \\
          sum += (ta == 111 ? a[i * lda + p] : a[p * lda + i]) * (tb == 111 ? b[p * ldb + j] : b[j * ldb + p]); \\
        c[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * ldc + j]); \\
      } \\
  }
GEMM(SGEMM, float)
GEMM(DGEMM, double)
"""


def _library(folder: Path, name: str = "libsmall.so", sgemm: str = "cblas_sgemm", integer: str = "int") -> Path:
    """Compile the CBLAS to a shared library."""
    (source := folder / "gemm.c").write_text(_GEMM)
    names = [f"-DSGEMM={sgemm}", f"-DDGEMM={sgemm.replace('sgemm', 'dgemm')}", f"-DINTEGER={integer}"]
    command = [COMPILER, "-O1", "-shared", "-fPIC", *names, source, "-o", folder / name]
    subprocess.run([str(word) for word in command], check=True)
    return folder / name


class Products(torch.nn.Module):
    """Products of matrices: with a weight and a bias, transposed, added, in batches, and small ones."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(96, 80)
        self.wide = torch.nn.Linear(80, 96, dtype=torch.float64)
        self.few = torch.nn.Linear(80, 2)

    def forward(self, x):
        """Return the products."""
        h = self.linear(x)
        parts = h.unflatten(0, (2, -1))
        pairs = (parts @ parts.mT).flatten()
        gradient = h.T @ x
        added = torch.baddbmm(parts * 2, parts, gradient[None, :, :80].expand(2, -1, -1))
        return h, self.wide(h.double()), pairs, added, parts.transpose(0, 1)[:, 1] @ gradient, self.few(h)


@pytest.fixture(scope="module")
def products():
    torch.manual_seed(0)
    model, n = Products().eval(), Dim("n", min=1, max=200)
    return model, lower(
        export(model, (torch.randn(128, 96),), dynamic_shapes=({0: 2 * n},)), output_type="linalg-on-tensors"
    )


def _assert_equal(outputs, expected):
    for output, wanted in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, wanted, rtol=1e-4, atol=1e-4)


@needs_toolchain
@pytest.mark.slow_rows(r"^int64_t")
@pytest.mark.parametrize(("integer", "sgemm"), [("int", "cblas_sgemm"), ("int64_t", "scipy_cblas_sgemm64_")])
def test_large_matmuls_call_cblas(products, integer, sgemm, tmp_path):
    """A library of integers of 32 or 64 bits, with names of its own."""
    model, lowered = products
    library = _library(tmp_path, f"lib{integer}.so", sgemm, integer)
    built = lowered.build(tmp_path / "net", blas=str(library))
    assert built.library.blas is not None
    assert built.library.blas.routines == {"f32": sgemm, "f64": sgemm.replace("sgemm", "dgemm")}
    call, code = NativeCaller(lowered, built), ctypes.CDLL(str(library))
    calls = ctypes.c_int.in_dll(code, "calls")
    for rows in (64, 4):
        before, x = calls.value, torch.randn(rows, 96)
        _assert_equal(call(x), model(x))
        assert calls.value - before == 9
    header = built.files[1].read_text()
    assert f"BLAS: large matmuls call {sgemm}" in header
    assert f"Link with lib{integer}.so" in header


@pytest.mark.parametrize(
    ("target", "shape", "calls"),
    [
        ("x86-64-v2", (12, 32, 64), 0),
        ("x86-64-v2", (12, 128, 64), 1),
        ("x86-64-v3", (12, 128, 64), 0),
        ("x86-64-v3", (2, 1024, 64), 1),
    ],
)
def test_matrices_of_a_batch_that_tiles_multiply_faster_are_not_passed(target, shape, calls):
    lowered = lower(lambda x, y: x @ y.mT, torch.ones(shape), torch.ones(shape), output_type="linalg-on-tensors")
    text = str(to_buffers(lowered.linked, "main", target_named(target), cblas=Cblas("openblas")))
    assert text.count("call @cblas_sgemm") == calls


def test_c_source_calls_cblas(products, tmp_path):
    model, lowered = products
    built = lowered.build(tmp_path / "net", kind="c", blas="small")
    library = _library(tmp_path)
    command = [COMPILER, *STRICT, "-O1", "-shared", "-fPIC", "-o", tmp_path / "net.so", tmp_path / "net.c", library]
    subprocess.run([str(word) for word in (*command, f"-Wl,-rpath,{tmp_path}", "-lm")], check=True)
    x = torch.randn(64, 96)
    status, outputs = Program(built, tmp_path / "net.so").call(x)
    assert status == 0
    _assert_equal(outputs, model(x))
    assert ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "calls").value == 9
    assert "Link with -lsmall" in built.files[1].read_text()


def test_sizes_beyond_the_integers_of_blas_have_a_status(tmp_path):
    """The matmul has 2^32 rows; it is not computed."""
    n = Dim("n", max=65536)
    weight = torch.ones(16, 64)
    program = export(_Rows(weight), (torch.ones(3, 4, 16),), dynamic_shapes=({0: n, 1: Dim("m", max=65536)},))
    built = lower(program, output_type="linalg-on-tensors").build(tmp_path / "net", kind="c", blas="small")
    command = [COMPILER, "-shared", "-fPIC", "-o", tmp_path / "net.so", tmp_path / "net.c", _library(tmp_path), "-lm"]
    subprocess.run([str(word) for word in command], check=True)
    ctypes.CDLL(str(tmp_path / "libsmall.so"), ctypes.RTLD_GLOBAL)
    code, memory = ctypes.CDLL(str(tmp_path / "net.so")), aligned_memory(64)
    code.net_status_text.restype = ctypes.c_char_p
    address = ctypes.c_void_p(memory.data_ptr())
    sizes = [ctypes.c_int64(65536)] * 2
    status = code.net_run(*sizes, address, address, address, ctypes.c_size_t(2**63))
    assert b"a size of a matmul is larger than 2147483647" in code.net_status_text(status)
    assert built.library.blas is not None


class _Rows(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x):
        return torch.relu(x.flatten(0, 1) @ self.weight)


@pytest.mark.parametrize(
    ("blas", "target", "kind", "message"),
    [
        ("openblas", "wasm32", "static", "wasm32 has no BLAS: leave blas='openblas' out"),
        ("openblas", "cortex-m4", "static", "cortex-m4 has no BLAS"),
        ("-lopenblas", None, "shared", "blas='-lopenblas' is not a library: accepted are a name as after -l"),
        ("", None, "shared", "blas='' is not a library"),
        ("no_such_blas", None, "shared", "there is no libno_such_blas.so here"),
        ("openblas", "riscv64", "shared", "blas='openblas' is looked for on this machine, which has no libra"),
        ("openblas", "x86_64-windows-gnu", "shared", "is not linked with BLAS here: build kind='static'"),
        ("/no/libblas.so", None, "shared", "'/no/libblas.so' cannot be read: No such file or directory"),
        ("FOLDER/gemm.c", None, "shared", "gemm.c' is not a shared library (ELF, 64 bits)"),
        ("FOLDER/cut.so", None, "shared", "cut.so' is a damaged shared library"),
        ("FOLDER/liblacks.so", None, "c", "liblacks.so' has no cblas_sgemm: it is not a BLAS with the interface of C"),
        ("FOLDER/liblacks.so", "riscv64", "static", "liblacks.so' is for "),
    ],
)  # fmt: skip
def test_libraries_that_cannot_be_linked_are_refused(blas, target, kind, message, libraries, tmp_path):
    with pytest.raises(UsageError, match=re.escape(message)):
        check_build(tmp_path / "net", target, kind, "embedded", None, blas.replace("FOLDER", str(libraries)))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    lacks = _library(folder, "liblacks.so", sgemm="sgemm")
    (folder / "cut.so").write_bytes(lacks.read_bytes()[:400])
    return folder


def test_a_name_is_looked_for_as_linkers_do(libraries, tmp_path, monkeypatch):
    _library(tmp_path, "libwith_version.so.3", sgemm="scipy_cblas_sgemm")
    monkeypatch.setenv("LIBRARY_PATH", f"{libraries}:{tmp_path}")
    cblas = find_cblas("with_version", target_named(None), "shared")
    assert cblas.link_options == [f"-L{tmp_path.resolve()}", "-l:libwith_version.so.3"]
    assert cblas.sgemm == "scipy_cblas_sgemm"
    assert find_cblas("with_version", target_named("aarch64"), "static").link_options == ["-lwith_version"]


def test_command_says_which_routines_code_calls(tmp_path, capsys):
    options = Options(output_type=OutputType.LINALG_ON_TENSORS)
    for model, routines in (
        ("tests.native.test_cblas:products_of_64", "cblas_sgemm"),
        ("examples.mlp:build", "nothing"),
    ):
        build_model(model, tmp_path / "net", options, target=None, kind="c", weights="embedded", blas="openblas")
        assert f"net calls of openblas: {routines}" in capsys.readouterr().out


def products_of_64():
    """Return a model of one large matmul, and its input."""
    return torch.nn.Linear(64, 64), (torch.randn(64, 64),)


@pytest.mark.parametrize(
    ("kind", "weights", "message"),
    [("shared", "cloud", "--weights-in cloud is not known"), ("disk", "file", "no kind 'disk'")],
)
def test_command_spells_options_in_errors(kind, weights, message, tmp_path):
    options = Options(output_type=OutputType.LINALG_ON_TENSORS)
    with pytest.raises(UsageError, match=message):
        build_model("examples.mlp:build", tmp_path / "net", options, target=None, kind=kind, weights=weights)
    assert not [*tmp_path.iterdir()]

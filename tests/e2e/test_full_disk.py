"""Files that cannot grow: an error of this package everywhere, nothing half-written, and no end of the process."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fx_importer import lower, reduce
from fx_importer.engines.jit.engine_code import LARGEST_CODE
from fx_importer.errors import FxImporterError

LIMIT = 16 << 10


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.Linear(100, 100)).eval()


X = torch.ones(2, 100)


def outcome(call: Callable[[], Any], limit: int = LIMIT) -> str:
    """Return the error of ``call`` in a fork whose files cannot grow; "" without one."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            call()
        except FxImporterError as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode()[:2000])
        except BaseException as error:
            os.write(writing, f"untyped {type(error).__name__}: {error}".encode()[:2000])
        os._exit(0)
    os.close(writing)
    said = os.read(reading, 4000).decode()
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    return said if not status else f"ended with {status}"


FULL = "DiskFullError: cannot write temporary files to"


@pytest.mark.parametrize(
    ("output_type", "backend"),
    [("linalg-on-tensors", "jit"), ("tosa", "tosa_reference"), ("stablehlo", "stablehlo"), ("torch", "iree")],
)
def test_verify_reports_a_full_disk(model, output_type, backend):
    lowered = lower(model, X, output_type=output_type)

    def verify() -> None:
        (check,) = lowered.verify(X, backends=[backend]).checks
        raise FxImporterError(f"{check.status.value}: {check.reason}")

    assert "failed: cannot write temporary files" in outcome(verify).replace("DiskFullError: ", "")


@pytest.mark.parametrize(
    "call",
    [
        lambda lowered, path: lowered.bisect(X, backend="jit"),
        lambda lowered, path: lowered.caller(backend="tosa_reference")(X),
        lambda lowered, path: lowered.caller(backend="iree")(X),
        lambda lowered, path: lowered.compile(),
        lambda lowered, path: reduce(lowered, path / "reduced", backend="jit"),
    ],
    ids=["bisect", "tosa_reference", "iree", "compile", "reduce"],
)
def test_temporary_files(model, tmp_path, call):
    lowered = lower(model, X, output_type="tosa")
    said = outcome(lambda: call(lowered, tmp_path))
    assert "cannot write temporary files to" in said
    assert "untyped" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["m.mlir", "m.mlirbc", "m.stablehlo", "w.safetensors", "w.irpa", "r.html", "r.json"])
def test_output_files(model, tmp_path, name):
    path = tmp_path / name
    lowered = lower(model, X, output_type="stablehlo", weights="external" if name[0] == "w" else "inline")
    save = lowered.report if name[0] == "r" else lowered.save
    if name[0] == "w":
        said = outcome(lambda: lowered.save(tmp_path / "m.mlirbc", weights=path))
    else:
        said = outcome(lambda: save(path), 2 << 10)
    assert said.startswith(f"UsageError: cannot save to '{path}': ")
    assert not list(tmp_path.iterdir())


def test_dumps(model, tmp_path):
    said = outcome(lambda: lower(model, X, output_type="tosa", dump_ir=".*", dump_dir=tmp_path), 1 << 10)
    assert said.startswith("UsageError: cannot save to")
    assert all(path.stat().st_size <= 1 << 10 for path in tmp_path.rglob("*.*") if path.is_file())


def test_cache_of_the_jit_is_left_alone(model, tmp_path, monkeypatch):
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path))
    lowered = lower(model, X, output_type="linalg-on-tensors")
    assert outcome(lambda: lowered.caller(backend="jit")(X), LARGEST_CODE - 1) == ""

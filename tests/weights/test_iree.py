"""External weights as IREE parameters: compiled code reads them from memory, or from a file."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from fx_importer import UsageError, link, lower
from fx_importer.engines.iree.iree_parameters import with_parameters
from tests.engines.test_engine_table import needs_iree


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        self.register_buffer("order", torch.randperm(64))
        self.register_buffer("mask", torch.rand(64) > 0.5)

    def forward(self, x):
        return torch.where(self.get_buffer("mask"), self.linear(x)[:, self.get_buffer("order")], 0.0)


X = torch.rand(3, 64)
TYPES = ["torch", "linalg-on-tensors", "stablehlo", "tosa"]


@pytest.mark.parametrize("output_type", TYPES)
def test_text_names_each_weight_once(output_type):
    lowered = lower(Small(), X, output_type=output_type, weights="external")
    text = lowered.iree_source("scope")
    for name in ("linear.weight", "linear.bias", "order", "mask"):
        assert text.count(f'#stream.parameter.named<"scope"::"{name}">') == 1
        assert f"dense_resource<{name}" not in text
    assert "dense_resource" in str(lowered.module)


def test_inline_weights_are_an_error():
    with pytest.raises(UsageError, match="lower with weights='external'"):
        lower(Small(), X, output_type="tosa").iree_source()


@needs_iree
@pytest.mark.slow_rows("^torch$", "^tosa$")
@pytest.mark.parametrize("output_type", TYPES)
def test_compiled_code_reads_tensors_without_a_copy(output_type):
    model, other = Small(), Small()
    lowered = lower(model, X, output_type=output_type, weights="external")
    torch.testing.assert_close(lowered.caller(backend="iree")(X), model(X).detach())
    torch.testing.assert_close(lowered.with_weights(other).caller(backend="iree")(X), other(X).detach())


@needs_iree
@pytest.mark.parametrize("suffix", ["safetensors", "irpa"])
def test_iree_reads_saved_weights(tmp_path: Path, suffix):
    runtime: Any = importlib.import_module("iree.runtime")
    find_tool: Any = importlib.import_module("iree.compiler.tools.binaries").find_tool
    model = Small()
    lowered = lower(model, X, output_type="linalg-on-tensors", weights="external")
    file = tmp_path / f"w.{suffix}"
    lowered.save(tmp_path / "m.mlirbc", weights=file)
    assert str(link(tmp_path / "m.mlirbc")) == str(lowered.linked)
    (tmp_path / "m.mlir").write_text(lowered.iree_source())
    flags = ["--iree-input-type=none", "--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host"]
    subprocess.run([find_tool("iree-compile"), tmp_path / "m.mlir", *flags, "-o", tmp_path / "m.vmfb"], check=True)
    assert (tmp_path / "m.vmfb").read_bytes().find(model.linear.weight.detach().numpy().tobytes()) < 0
    config = runtime.Config("local-sync")
    index = runtime.ParameterIndex()
    index.load(str(file))
    parameters = runtime.create_io_parameters_module(config.vm_instance, index.create_provider(scope="model"))
    code = runtime.VmModule.mmap(config.vm_instance, str(tmp_path / "m.vmfb"))
    main: Any = runtime.load_vm_modules(parameters, code, config=config)[-1]["main"]
    torch.testing.assert_close(torch.from_numpy(main(X.numpy()).to_host().copy()), model(X).detach())


def test_archive_without_iree(tmp_path, monkeypatch):
    from fx_importer import NotInstalledError
    from fx_importer.engines.iree import iree_parameters

    monkeypatch.setattr(iree_parameters, "is_installed", lambda name: False)
    lowered = lower(Small(), X, output_type="torch", weights="external")
    with pytest.raises(NotInstalledError, match="an IREE parameter archive .*iree"):
        lowered.save(tmp_path / "m.mlir", weights=tmp_path / "w.irpa")
    assert not list(tmp_path.iterdir())


def test_torch_dialect_integers_become_signless():
    lowered = lower(Small(), X, output_type="torch", weights="external")
    assert "tensor<64xi64>" in with_parameters(lowered.module, {"order": "order"})

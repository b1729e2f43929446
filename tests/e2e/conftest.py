"""Runs what was lowered: linalg on the JIT, StableHLO and TOSA on their reference interpreters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree
from torch_mlir._mlir_libs import _stablehlo

from fx_importer.bindings import ir
from fx_importer.compilation import Lowered
from fx_importer.output_types import OutputType

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return ``run(lowered, *inputs)``, which returns what the model does, or the list of its tensors."""

    def run(lowered: Lowered, *inputs: torch.Tensor) -> Any:
        if lowered.options.output_type is OutputType.STABLEHLO:
            return _run_stablehlo(lowered.module, inputs)
        if lowered.options.output_type is OutputType.TOSA:
            return _run_tosa(lowered.module, inputs, tmp_path)
        return pytree.tree_leaves(lowered.run(*inputs))

    return run


def _run_stablehlo(module: ir.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Run on the interpreter in the wheel, which aborts the process on an op that it does not know."""
    foreign: set[str] = set()

    def see(op: ir.Operation) -> ir.WalkResult:
        if not op.name.startswith(("stablehlo.", "func.", "builtin.")):
            foreign.add(op.name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(see)
    assert not foreign
    assert "dense_resource" not in str(module)  # of which it makes a tensor of ones
    with module.context:
        arguments = [ir.DenseElementsAttr.get(each.numpy(), signless=True) for each in inputs]
        results = _stablehlo.eval_module(module, arguments)
        return [torch.from_numpy(np.array(ir.DenseElementsAttr(each))) for each in results]


_TOSA_TARGET = "profiles=pro_fp,pro_int extensions=int64,controlflow specification_version=1.1.draft level=8k"


def _run_tosa(module: ir.Module, inputs: tuple[torch.Tensor, ...], folder: Path) -> list[torch.Tensor]:
    """Run on Arm's reference model, after its validator has seen the module."""
    model = pytest.importorskip("tosa_reference_model", reason="of the package tosa-tools")
    text, binary = folder / "module.mlir", folder / "module.tosa"
    text.write_text(str(module))
    command = [
        Path(sys.executable).with_name("tosa-opt"),
        text,
        f"--tosa-attach-target={_TOSA_TARGET}",
        "--tosa-validate=strict-op-spec-alignment",
        "--tosa-serialize",
        f"--tosa-flatbuffer-filename={binary}",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    results, status = model.run(binary.read_bytes(), [each.numpy() for each in inputs])
    assert status.name == "TOSA_VALID"
    return [torch.from_numpy(np.array(each)) for each in results]

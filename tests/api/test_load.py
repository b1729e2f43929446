"""Saved modules, read again, and the texts of results."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from fx_importer import UsageError, load, lower, pipeline_for
from fx_importer.mlir.module_io import read_module


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 4)
        self.calls = torch.nn.Buffer(torch.zeros(()))

    def forward(self, inputs, scale=1.0):
        self.calls.add_(1)
        return {"y": self.linear(inputs["x"]) * scale + self.calls}


NOT_LOADED = ("compiler.driver", "decompositions", "exporting", "importing", "lowerings", "verification")
INPUTS = {"x": torch.ones(2, 16)}


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    return torch.export.export(Counter().eval(), (INPUTS,))


@pytest.mark.parametrize(
    "output_type, suffix, weights",
    [("linalg-on-tensors", ".mlir", "inline"), ("stablehlo", ".mlirbc", "external"), ("tosa", ".mlirbc", "args")],
)
def test_round_trip(program, tmp_path: Path, output_type: str, suffix: str, weights: str):
    lowered = lower(program, output_type=output_type, mutation="functional", weights=weights)
    path = tmp_path / f"m{suffix}"
    lowered.save(path, weights=None if weights == "inline" else tmp_path / "w.safetensors")
    again = load(path, program=program)
    assert (again.manifest.functions, again.manifest.state) == (lowered.manifest.functions, lowered.manifest.state)
    assert again.options.importing == lowered.options.importing
    assert str(again.module) == str(lowered.module)
    assert again.verify(backends=["jit"])
    assert again.exported_program is program
    torch.testing.assert_close(
        load(path, trust=True).caller(program.state_dict, "jit")(INPUTS), program.module()(INPUTS)
    )
    again.save(tmp_path / f"again{suffix}")
    assert repr(load(tmp_path / f"again{suffix}", program=program)) == repr(again)


def test_without_program(program, tmp_path: Path):
    lowered = lower(program, output_type="linalg-on-tensors", mutation="functional", weights="external")
    lowered.save(tmp_path / "m.mlirbc")
    again = load(tmp_path / "m.mlirbc")
    with pytest.raises(UsageError, match="read without values for 'linear.weight', 'linear.bias': pass weights="):
        again.run(INPUTS)
    filled = again.with_weights(program)
    with pytest.raises(UsageError, match="no state was given for 'calls'"):
        filled(INPUTS)
    for call in (filled.verify, filled.bisect, lambda: filled.exported_program, lambda: filled.caller(backend="eager")):
        with pytest.raises(UsageError, match="read without its program: pass the exported program"):
            call()


def test_what_does_not_fit(program, tmp_path: Path):
    path = tmp_path / "m.mlir"
    lower(program, output_type="linalg-on-tensors", mutation="functional").save(path)
    other = torch.export.export(torch.nn.Linear(3, 3), (torch.ones(3),))
    with pytest.raises(UsageError, match="of another program:\n  'main': it has no state 'calls'\n  'main': it has no"):
        load(path, program=other)
    with pytest.raises(UsageError, match="not of type Linear: torch.export.export"):
        load(path, program=cast(Any, torch.nn.Linear(3, 3)))
    with pytest.raises(UsageError, match="the functions of the module are 'main', and programs are given for 'decode'"):
        load(path, program={"decode": program})
    with pytest.raises(UsageError, match="the weights are in"):
        load(path, weights=program)
    narrower = lower(Counter().eval(), {"x": torch.ones(2, 16)}, output_type="linalg-on-tensors", mutation="functional")
    (tmp_path / "other.json").write_text(narrower.manifest.to_json().replace("float32", "float16"))
    with pytest.raises(
        UsageError, match="'inputs_x', one of the arguments of 'main', is tensor<2x16xf32> in the module"
    ):
        load(path, manifest=tmp_path / "other.json")
    bare = tmp_path / "bare.mlir"
    bare.write_text(str(read_module(path)))
    with pytest.raises(UsageError, match="has no manifest, inside or beside it"):
        load(bare)
    with pytest.raises(UsageError, match="portable artifact"):
        load(tmp_path / "m.stablehlo")


def test_texts_fit_a_screen(program):
    lowered = lower(program, output_type="linalg-on-tensors", mutation="functional")
    assert len(str(lowered).splitlines()) < 12
    assert "function    main(state calls: float32[], inputs_x: float32[2, 16]) -> (" in str(lowered)
    for each in (lowered, lowered.manifest, lowered.trace):
        assert repr(each).startswith(f"<{type(each).__name__} ")
        assert len(repr(each)) < 300
    for each in (lowered, lowered.trace, pipeline_for("linalg-on-tensors")):
        assert "<details>" in each._repr_html_()
    assert repr(pipeline_for("linalg-on-tensors")).startswith("<Pipeline linalg-on-tensors: torch-backend, ")
    rows = lowered.trace.table().splitlines()
    assert len(rows) == len(lowered.trace.stages) + 1
    assert rows[0].startswith("frontend ")
    events = lowered.trace.to_chrome()["traceEvents"]
    assert [each["name"] for each in events] == [each.name for each in lowered.trace.stages]
    assert all(one["ts"] + one["dur"] <= next["ts"] for one, next in pairwise(events))
    verdict = lowered.verify(backends=["jit"])
    assert repr(verdict) == "<Verdict passed, linalg-on-tensors: jit passed>"


@pytest.mark.slow
@pytest.mark.new_interpreter
def test_saved_module_runs_without_the_compiler(tmp_path: Path):
    path = tmp_path / "m.mlirbc"
    lower(torch.nn.Linear(4, 2), torch.ones(3, 4), output_type="linalg-on-tensors").save(path)
    loaded = "import sys, torch; from fx_importer import load; load(sys.argv[1]).run(torch.ones(3, 4)); "
    named = ("sympy", "torch._dynamo", "torch_mlir.dialects.torch", *(f"fx_importer.{each}" for each in NOT_LOADED))
    code = f"{loaded}print([each for each in {named} if each in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"

"""`explain`: which operators of a program are unsupported."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import platformdirs
import pytest
import torch

import fx_importer
from fx_importer.cli import main
from fx_importer.output_types import OutputType
from fx_importer.probing import ProbeStore, prober
from fx_importer.probing.prober import LoweringFailure


class Mixed(torch.nn.Module):
    """Operators supported by none, by linalg only, not importable, and by all."""

    def forward(self, x):
        places = x.nonzero().repeat(2, 1)
        return torch.ops.aten._standard_gamma(x), places, torch.randn_like(torch.complex(x, x)), x.tanh()


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    return tmp_path


def unsupported(found: fx_importer.Explanation, output_type: str) -> set[str]:
    each = found[output_type]
    return {cause.op for cause in each.causes} | {node.subject.split(" = ")[1] for node in each.unsupported_nodes}


def test_unsupported_operators_per_output_type() -> None:
    found = fx_importer.explain(Mixed(), torch.rand(3, 3))
    assert unsupported(found, "linalg") == {"aten._standard_gamma.default", "aten.randn_like.default"}
    everything = {"aten._standard_gamma.default", "aten.nonzero.default", "aten.randn_like.default"}
    assert unsupported(found, "tosa") == unsupported(found, "stablehlo") == everything
    assert not found
    assert "tosa: 3 problems" in str(found)


def test_import_error_lists_operators_unsupported_later() -> None:
    with pytest.raises(fx_importer.UnsupportedProgramError, match="the lowering would then fail at") as raised:
        fx_importer.lower(Mixed(), torch.rand(3, 3), output_type="tosa")
    assert [each.subject for each in raised.value.unsupported_nodes] == ["randn_like = aten.randn_like.default"]
    assert {each.op for each in raised.value.causes} == {"aten._standard_gamma.default", "aten.nonzero.default"}


def test_supported_model() -> None:
    found = fx_importer.explain(torch.nn.Linear(3, 3), torch.rand(3, 3))
    assert found
    assert str(found).splitlines() == [f"{name}: supported" for name in ("linalg-on-tensors", "tosa", "stablehlo")]


def test_outcomes_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fx_importer.explain(Mixed(), torch.rand(3, 3), output_types=["linalg"])

    def lowered_again(*_: object) -> None:
        raise AssertionError("it is known")

    monkeypatch.setattr(prober.Prober, "_lower", lowered_again)
    assert fx_importer.explain(Mixed(), torch.rand(3, 3), output_types=["linalg"]) == first


def test_unusable_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = ProbeStore(tmp_path / "file")
    store.put("pipeline", "module", LoweringFailure("stage", "reason"))
    assert store.get("pipeline", "module") == (False, None)


def test_store_distinguishes_supported_from_unknown(tmp_path: Path) -> None:
    store = ProbeStore(tmp_path)
    store.put("pipeline", "good", None)
    store.put("pipeline", "bad", LoweringFailure("stage", "reason"))
    assert store.get("pipeline", "good") == (True, None)
    assert store.get("pipeline", "bad") == (True, LoweringFailure("stage", "reason"))
    assert store.get("other", "good") == (False, None)
    (file,) = tmp_path.iterdir()
    with closing(sqlite3.connect(file)) as table:
        assert table.execute("SELECT COUNT(*) FROM outcomes").fetchone() == (2,)


def test_command_prints_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = torch.export.export(Mixed(), (torch.rand(3, 3),))
    torch.export.save(program, tmp_path / "mixed.pt2")
    arguments = ["explain", str(tmp_path / "mixed.pt2"), "--output-type", "linalg", "--json", str(tmp_path / "x.json")]
    monkeypatch.setattr(sys, "argv", ["fx-importer", *arguments])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 1
    assert "linalg-on-tensors: 2 problems" in capsys.readouterr().out
    found = json.loads((tmp_path / "x.json").read_text())
    assert [each["op"] for each in found["linalg-on-tensors"]["causes"]] == ["aten._standard_gamma.default"]
    assert found["linalg-on-tensors"]["causes"][0]["places"][0]["file"] == __file__


def test_dynamic_sizes() -> None:
    class Reshaped(torch.nn.Module):
        def forward(self, x):
            return x.reshape(-1, 2).tanh()

    sizes = ({0: torch.export.Dim("n", min=2)},)
    found = fx_importer.explain(Reshaped(), torch.rand(4, 2), dynamic_shapes=sizes, output_types=["linalg"])
    assert found
    assert found[OutputType.LINALG_ON_TENSORS].causes == ()


def test_explain_lists_the_sizes_for_which_alone_a_program_works() -> None:
    explanation = fx_importer.explain(lambda x: x[x > 0] + torch.arange(2), torch.ones(2), output_types=["torch"])
    (assumption,) = explanation.assumptions
    assert assumption.startswith("`size 0 of aten.index.Tensor")
    assert " is 2, at " in assumption

"""Reports for the explorer: what they link, and that nothing of a model can break the page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops.base_hop import BaseHOP

from fx_importer import load, lower
from fx_importer.api.report import contents_of_models
from fx_importer.cli import main
from fx_importer.errors import UsageError
from fx_importer.options import Options
from fx_importer.output_types import OutputType


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.mix(x)  # </script><img src="https://example.com/x.png"> <!-- &amp;
        return torch.cumsum(y, 0) * 3


class Refused(Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._standard_gamma(super().forward(x))


class Scripts(HTMLParser):
    """The tags of a page, and the text of its scripts."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += data


def lines_of(contents: dict[str, Any], view: dict[str, Any], source: str) -> list[str]:
    """Return the lines of a view that come from the source line that starts with ``source``."""
    at = [
        [file, number]
        for file, each in enumerate(contents["files"])
        for number, line in enumerate(each["lines"], 1)
        if line.strip().startswith(source)
    ]
    sites = {number for number, site in enumerate(contents["sites"]) if any(each in site["frames"] for each in at)}
    sets = [bool(sites & set(each)) for each in contents["site_sets"]]
    return [line for line, place in zip(view["lines"], view["site_sets"], strict=True) if sets[place]]


def test_report(tmp_path: Path):
    lowered = lower(Scaled(), torch.ones(3, 4), output_type="stablehlo")
    lowered.report(tmp_path / "model.json")
    report = lowered.report(tmp_path / "model.html")
    assert repr(report) == f"<Report stablehlo: Scaled, lowered, {len(lowered.trace.stages)} stages>"
    page = (tmp_path / "model.html").read_text()
    found = json.loads((tmp_path / "model.json").read_text())
    scripts = Scripts(page)
    assert "img" not in scripts.tags
    assert scripts.scripts[0].count("<") == 0
    assert json.loads(scripts.scripts[0])["views"] == found["views"]
    assert "default-src 'none'" in page

    assert found["schema_version"] == 1
    assert found["outcome"] == "lowered"
    assert found["problems"] == []
    assert [each["name"] for each in found["stages"]][:4] == [*("frontend", "decompositions", "fx_passes", "importing")]
    first, last = found["views"][0], found["views"][-1]
    assert (first["kind"], last["kind"]) == ("fx", "mlir")
    assert any("aten.linear" in line for line in lines_of(found, first, "y = self.mix(x)"))
    assert any("stablehlo.dot" in line for line in lines_of(found, last, "y = self.mix(x)"))
    cumsum = "".join(lines_of(found, last, "return torch.cumsum"))
    assert "stablehlo.reduce_window" in cumsum
    assert "stablehlo.dot" not in cumsum
    assert not any("fx-importer-explorer" in line for each in found["views"] for line in each["lines"])
    assert {each["module"] for each in found["sites"]} >= {"mix"}
    assert {each["name"] for each in found["constants"]} >= {"mix.weight", "mix.bias"}
    stage = found["stages"][-1]
    assert stage["operations"]["stablehlo.reduce_window"] == 1

    with pytest.raises(UsageError, match=r"the suffix must be \.html \(a page\) or \.json"):
        lowered.report(tmp_path / "model.txt")


def test_report_of_a_saved_module(tmp_path: Path):
    lower(Scaled(), torch.ones(3, 4), output_type="stablehlo").save(tmp_path / "model.mlirbc")
    load(tmp_path / "model.mlirbc").report(tmp_path / "model.json")
    found = json.loads((tmp_path / "model.json").read_text())
    assert [each["name"] for each in found["stages"]] == ["stablehlo"]
    assert any("stablehlo.dot" in line for line in lines_of(found, found["views"][0], "y = self.mix(x)"))


def test_refused_operator():
    options = Options(output_type=OutputType.STABLEHLO)
    found = contents_of_models("refused", {"main": (Refused(), (torch.ones(3, 4),), {})}, options)
    assert found["outcome"] == "failed"
    assert "1 unsupported operator" in found["error"]
    (problem,) = found["problems"]
    assert problem["operator"] == "aten._standard_gamma.default"
    (place,) = problem["places"]
    assert "aten._standard_gamma(" in found["files"][place["file"]]["lines"][place["line"] - 1]
    last = found["views"][-1]
    (row,) = last["refused"]
    assert "_standard_gamma" in last["lines"][row]
    assert "contract" in found["not_reached"]


class Negated(BaseHOP):
    def __init__(self):
        super().__init__("report_negated")


NEGATED, NEGATIVE = Negated(), torch.fx.symbolic_trace(lambda x: (x.neg(),))


class Unknown(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.negative = NEGATIVE

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return NEGATED(self.negative, x)[0]


def test_node_that_cannot_be_imported():
    options = Options(output_type=OutputType.TOSA)
    found = contents_of_models("unknown", {"main": (Unknown(), (torch.ones(3),), {})}, options)
    assert found["outcome"] == "failed"
    (problem,) = found["problems"]
    assert problem["operator"] == "report_negated"
    assert [found["views"][0]["lines"][each] for each in found["views"][0]["refused"]]
    assert all(each["kind"] == "fx" for each in found["views"])


def test_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "viewed.py").write_text(
        "import torch\n\ndef good():\n    return torch.nn.Tanh(), (torch.ones(2),)\n\n"
        "def gamma(x):\n    return torch._standard_gamma(x)\n\ndef bad():\n    return gamma, (torch.ones(2),)\n"
    )
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["fx-importer", "view", *arguments])
        with pytest.raises(SystemExit) as exit:
            main()
        return int(exit.value.code or 0)

    assert run("viewed:good", "-o", "good.html") == 0
    assert re.search(r"good.html: linalg-on-tensors, lowered, \d views", capsys.readouterr().out)
    assert run("viewed:bad", "-o", "bad.json", "--output-type", "tosa") == 1
    assert json.loads((tmp_path / "bad.json").read_text())["outcome"] == "failed"
    assert "_standard_gamma" in capsys.readouterr().err
    assert run("viewed:good", "-o", "good.txt") == 2

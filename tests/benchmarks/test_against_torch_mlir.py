"""Aggregation and child processes of `benchmarks.against_torch_mlir`; neither importer is run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from benchmarks.comparison.cases import Case
from benchmarks.comparison.child import weights_bytes
from benchmarks.comparison.graphs import chain
from benchmarks.comparison.limited import ChildError, run_python
from benchmarks.comparison.sides import STAGES, StageClock
from benchmarks.comparison.summary import Measurement, Result, Spread, ratio, scalings
from benchmarks.comparison.tables import short, spread_text, tables

HERE = Path(__file__).parent
MEBI = 2**20


def _run(seconds: float, peak: int = 0) -> Measurement:
    stages = dict.fromkeys(STAGES, 0.0) | {"import": seconds}
    return Measurement(stages, wall_seconds=seconds, peak_bytes=peak, weights_bytes=500_000_000, operations=3)


def _spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_nested_stages_count_once():
    clock = StageClock()
    with clock.stage("report text"):
        _spin(0.02)
        clock.timed("passes", _spin)(0.05)
    seconds = clock.read()
    assert 0.02 <= seconds["report text"] < 0.045
    assert seconds["passes"] >= 0.05
    assert seconds["rest"] < 0.02


def test_ratio_of_ranges_covers_every_pair():
    shares = Spread.of([30.0, 20.0, 40.0]) / Spread.of([2.0, 1.0])
    assert shares == Spread(10.0, 20.0, 40.0)
    assert ratio(Spread.of([1.0]), None) is None
    assert ratio(Spread.of([1.0]), Spread.of([0.0])) is None


def test_cost_per_gb_and_memory_over_weights():
    run = _run(2.0, peak=25_000_000)
    assert run.import_seconds_per_gb == 4.0
    assert run.peak_over_weights == 1.05


@pytest.mark.parametrize(
    "value, text", [(0, "0"), (0.5, "0.500"), (0.01234, "0.0123"), (1.5, "1.50"), (41.26, "41.3"), (2197.4, "2197")]
)
def test_three_significant_digits(value: float, text: str):
    assert short(value) == text


def test_range_is_shown_only_if_values_differ():
    assert spread_text(Spread.of([1.0, 1.0])) == "1.00"
    assert spread_text(Spread.of([1.0, 2.0, 4.0])) == "2.00 (1.00-4.00)"
    assert spread_text(None) == "—"


def test_unfinished_run_has_a_row():
    case = Case("weights_big", "raw")
    peer = Result(case, "torch_mlir.fx", failure="more than 14 GB")
    ours = Result(case, "fx_importer", runs=(_run(0.5, peak=MEBI), _run(1.5, peak=MEBI)))
    titles = [title for title, _ in tables([(peer, ours)], markdown=True)]
    assert titles == ["From the exported program to the module", "Importing weights", "CPU seconds by stage"]
    console = Console(width=400)
    with console.capture() as text:
        console.print(tables([(peer, ours)], markdown=True)[0][1])
    row = [cell.strip() for cell in text.get().splitlines()[-2].split("|")[1:-1]]
    assert row[:5] == ["weights_big → raw", "477", "did not finish", "1.00 (0.500-1.50)", "—"]
    assert row[5:] == ["—", "did not finish", "1.00", "—"]


def test_cost_per_node_by_graph_size():
    results = [
        Result(Case(f"chain_{nodes}", "raw", nodes), "fx_importer", runs=(_run(seconds),))
        for nodes, seconds in ((1000, 0.1), (4000, 0.4), (16000, 2.4))
    ]
    (found,) = scalings(results)
    assert found.family == "chain"
    assert found.microseconds == pytest.approx({1000: 100, 4000: 100, 16000: 150})
    assert found.growth == pytest.approx(1.5)
    assert 1.1 < found.exponent < 1.2


def test_generated_graphs_match_eager():
    program = chain(40)
    assert len(program.graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)) == 10
    x, y = torch.rand(16, 16), torch.rand(16, 16)
    expected = x
    for _ in range(10):
        expected = torch.tanh(torch.sin(expected) * y + expected)
    torch.testing.assert_close(program.module()(x, y), expected)


@pytest.mark.new_interpreter  # the memory of a fork is not that of its client
@pytest.mark.parametrize(
    "code, memory, seconds, message",
    [
        ("import time; time.sleep(60)", 1e9, 0.2, "more than 0 s"),
        ("import time; x = bytearray(10**9); time.sleep(60)", 0.3e9, 60, "more than 0 GB"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", 1e9, 60, "ended by SIGABRT"),
        ("raise ValueError('no such thing')", 1e9, 60, "ValueError: no such thing"),
    ],
)
def test_failed_child_reports_its_reason(code: str, memory: float, seconds: float, message: str):
    with pytest.raises(ChildError, match=f"^{message}$"):
        run_python(["-c", code], cwd=HERE, memory_bytes=memory, seconds=seconds)


def test_successful_child_reports_nothing(tmp_path: Path):
    run_python(["-c", "open('done', 'w').close()"], cwd=tmp_path, memory_bytes=1e9, seconds=60)
    assert (tmp_path / "done").exists()


def test_shared_weights_count_once():
    first, second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    second.weight = first.weight
    program = torch.export.export(nn.Sequential(first, second), (torch.ones(1, 8),))
    assert weights_bytes(program) == 8 * 8 * 4

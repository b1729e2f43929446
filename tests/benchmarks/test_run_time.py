"""The benchmark of calls: tables of runs, and the page that they are written to."""

from dataclasses import replace

import pytest
import torch

from benchmarks import run_time
from benchmarks.rows import section_of
from benchmarks.run_time_models import load
from benchmarks.running.bars import bars
from benchmarks.running.compiling import Compiling
from benchmarks.running.roofline import Roofline, flops_and_bytes
from benchmarks.running.runs import Figures, Run, tables
from benchmarks.running.saved_module import SavedModule
from benchmarks.running.training import STEPS, load_training
from fx_importer.benchmarking import Example, Measurement

FOUND = (
    Measurement("eager", calls=(0.010, 0.012, 0.014), call_memory=2**29),
    Measurement("jit:linalg-on-tensors", calls=(0.006,), load=2.5, first_call=0.5, call_memory=2**30),
    Measurement("iree:stablehlo", calls=(0.004,)),
    Measurement("iree:torch", problem="it does not compile"),
    Measurement("iree-turbine", calls=(0.003,)),
    Measurement("inductor", calls=(0.005,)),
    Measurement("openvino", calls=(0.003,)),
)
TRAINED = (FOUND[0], Measurement("torch.compile", calls=(0.024,)))
RUNS = [
    Run("mobilenet", 1, "fp32", 1, 10**9, 10**6, FOUND),
    Run("addition", 1, "fp32", 1, 0, 0, FOUND[:2]),
    Run("mlp", 0, "training", 1, 0, 0, TRAINED),
]
ROOFLINES = [Roofline(1, {"fp32": 5e11}, 1e9)]
SAVED = [SavedModule("mobilenet", 1, "fp32", 2**28, 2**28 + 2**25)]
FIGURES = Figures({"date": "today"}, ROOFLINES, RUNS, [Compiling("bert_base", 3.5, 0.1)], SAVED)


def test_tables_have_speeds_front_ends_and_additions(tmp_path):
    FIGURES.write(tmp_path / "times.json")
    text = tables(Figures.read(tmp_path / "times.json"))
    assert "| mobilenet | 12.0 (11.0-13.0) | 17% | 2.00 | 3.00 | 4.00 | 2.40 | 4.00 |" in text
    assert "| geometric mean |  |  | 2.00 (1) | 3.00 (1) | 4.00 (1) | 2.40 (1) | 4.00 (1) |" in text
    assert "| mobilenet | 0.0 s, 512 | 3.0 s, 1024 |" in text
    assert "| iree:stablehlo / iree-turbine | the fastest of ours / inductor | jit / openvino |" in text
    assert "| mobilenet | 0.75 | 1.25 | 0.50 |" in text
    assert "| batch 1, fp32, 1 thread | 12000 | 6000 |" in text
    assert "| mobilenet, batch 1, fp32, 1 thread | 256 | 288 | 1.12 |" in text
    assert "| mlp, training, 1 thread | 12.0 (11.0-13.0) | 0.50 |" in text


def test_figures_are_beside_what_they_should_be():
    text = bars(FIGURES)
    assert "| jit / eager, batch 1, fp32, 1 thread | 2.00 (1) | 2.00 (mobilenet) | mean 1.0, each 0.7 | met |" in text
    assert (
        "| iree / iree-turbine, batch 1, fp32, 1 thread | 0.75 (1) | 0.75 (mobilenet) | mean 0.95 | **missed** |"
        in text
    )
    assert (
        "| jit / openvino, batch 1, fp32, 1 thread | 0.50 (1) | 0.50 (mobilenet) | mean 1.0, each 0.85 | **missed** |"
        in text
    )
    assert "| torch.compile / eager, training, 1 thread | 0.50 (1) | 0.50 (mlp) | mean 1.0 | **missed** |" in text
    assert "| one addition, jit over eager, batch 1, fp32, 1 thread | -6000.0 µs | 15 µs | met |" in text
    assert "| JIT, bert_base compiled | 3.50 CPU s | 3.0 s | **missed** |" in text
    assert "| JIT, bert_base cached | 0.10 CPU s | 0.5 s | met |" in text
    of_one = "memory / eager's, batch 1, fp32, 1 thread"
    assert f"| a saved module on the JIT, {of_one} | 1.12 | 1.2 | met |" in text
    assert f"| JIT, in the process that lowers, {of_one} | mobilenet 2.00 | 1.2 | **missed** |" in text


def test_pages_are_renewed(tmp_path):
    from benchmarks.running import page  # it imports matplotlib, which takes seconds

    (tmp_path / "docs" / "measurements").mkdir(parents=True)
    pages = [tmp_path / "docs" / name for name in ("measurements/calls.md", "measurements/engines.md")]
    for each in pages:
        mark = "figures of benchmarks/run_time.py --docs"
        section_of(run_time.ROOT / each.relative_to(tmp_path), mark)
        each.write_text(f"<!-- begin {mark} -->\n<!-- end {mark} -->\n")
    page.write(tmp_path, FIGURES)
    assert "| mobilenet | 12.0 (11.0-13.0) |" in pages[0].read_text()
    row = "| jit:linalg-on-tensors | batch 1, fp32, 1 thread | 2.00 (1) | 2.00 (mobilenet) | 2.00 (mobilenet) |"
    assert row in pages[1].read_text()
    assert (tmp_path / "docs" / "measurements" / "calls.svg").exists()


def test_models_have_their_dtype_and_operations():
    model, inputs, _ = load("addition", 8, "bf16")
    assert model(*inputs).dtype is torch.bfloat16
    flops, weights = flops_and_bytes(lambda: (torch.nn.Linear(4, 2), (torch.ones(3, 4),), {}))
    assert (flops, weights) == (2 * 3 * 4 * 2, 4 * (4 * 2 + 2))


def test_unknown_engines_are_named():
    assert [each.name for each in run_time.engines_named(["jax", "jit"])] == ["eager", "jit:linalg-on-tensors", "jax"]
    with pytest.raises(SystemExit):
        run_time.engines_named(["jacks"])


def test_training_steps_return_the_loss_and_gradients():
    trained, inputs, _ = load_training("mlp, SGD")
    before = [each.detach().clone() for each in trained.parameters()]
    eager = STEPS[0].prepare(Example(trained, inputs, {}))
    loss, *gradients = eager(*inputs)
    assert loss.shape == ()
    assert len(gradients) == len(before)
    for old, new, gradient in zip(before, trained.parameters(), gradients, strict=True):
        torch.testing.assert_close(old - 1e-4 * gradient, new.detach())


def test_interrupted_runs_go_on(tmp_path, capsys, monkeypatch):
    file = tmp_path / "times.json"
    commit = run_time.machine()["commit"]
    replace(FIGURES, machine={"commit": commit}).write(file)
    monkeypatch.setattr("sys.argv", ["run_time.py", "mobilenet", "addition", "--json", str(file)])
    run_time.main()
    assert "| mobilenet | 12.0 (11.0-13.0) |" in capsys.readouterr().out
    file.write_text(file.read_text().replace(commit, "0000000"))
    with pytest.raises(SystemExit, match="0000000"):
        run_time.main()

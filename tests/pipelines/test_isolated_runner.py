"""Pipelines in an isolated process: same results and failures as in-process, and named crashes."""

import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from fx_importer import ContractWarning, CrashedError, StageFailed, UsageError, export_and_import, lower
from fx_importer.diagnostics.mlir_diagnostics import PassError
from fx_importer.diagnostics.trace import Trace
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.options import Limits, LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pass, Pipeline, Stage, isolated_runner, run_stage
from fx_importer.pipelines.isolated_runner import IsolatedProber, IsolatedStages, run_stages
from fx_importer.pipelines.python_passes import imported_step
from fx_importer.pipelines.stage import on_functions
from fx_importer.targets import pipeline_for
from tests.pipelines import faults

LOWERED = [OutputType.TORCH, OutputType.LINALG_ON_TENSORS, OutputType.TOSA, OutputType.STABLEHLO]
T = "!torch.vtensor<[2],f32>"
TEXT = f"""
func.func @main(%x: {T}) -> {T} {{
  %r = torch.aten.relu %x : {T} -> {T} loc("model.py":3:1)
  return %r : {T}
}}
"""
CUSTOM = TEXT.replace(f"torch.aten.relu %x : {T}", f'torch.operator "torch.mylib.twice"(%x) : ({T})')


@pytest.fixture(autouse=True)
def importable_tests(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


def module(text: str = TEXT) -> ir.Module:
    load_dialects(context := new_context())
    return ir.Module.parse(text, context)


def fault(name: str) -> Stage:
    step = imported_step(f"tests.pipelines.faults:{name}")
    return Stage("faulty", "", (on_functions("cse", "canonicalize"), step, Pass("symbol-dce")))


def stages(into: OutputType) -> tuple[Stage, ...]:
    return pipeline_for(into, LoweringOptions()).stages


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(40, 50), torch.nn.Linear(50, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(x))).softmax(-1)


@pytest.mark.parametrize("into", LOWERED, ids=str)
def test_module_equals_in_process_module(into):
    torch.manual_seed(0)
    raw = export_and_import(Mlp(), torch.randn(2, 40))
    here = ir.Module.parse(str(raw), new_context())
    there = ir.Module.parse(str(raw), new_context())
    for stage in stages(into):
        run_stage(stage, here)
    run_stages(stages(into), there)
    assert spelled(there) == spelled(here)


def spelled(module: ir.Module) -> str:
    """Return the text without the suffixes that MLIR adds to names in use: a weight of another shape is another
    weight.
    """
    return re.sub(r"\b(\w+\.bias)_1\b", r"\1", module.operation.get_asm(enable_debug_info=True))


def test_weights_are_the_original_resources():
    raw = export_and_import(Mlp(), torch.randn(2, 40))
    before = str(raw)
    run_stages("builtin.module(symbol-dce)", raw)
    assert str(raw) == before  # by name too: a copy in the same context would have another


@pytest.mark.parametrize("into", LOWERED[1:], ids=str)
def test_failure_equals_in_process_failure(into):
    failures = []
    for run in (run_here, run_stages):
        with pytest.raises(StageFailed) as caught:
            run(stages(into), module(CUSTOM))
        failures.append(caught.value)
    here, there = failures
    assert (there.stage, there.diagnostics, str(there)) == (here.stage, here.diagnostics, str(here))
    assert here.diagnostics[0].where == "model.py:3"


def run_here(stages: Sequence[Stage], given: ir.Module) -> None:
    for stage in stages:
        with Trace().stage(stage.name, given):
            run_stage(stage, given)


def test_other_failures():
    with pytest.raises(StageFailed, match=r"^stage 'faulty' failed:\n  error: gave up on it\n      at model.py:3$"):
        run_stages([fault("refuse")], module(TEXT.replace("}\n", '} loc("model.py":3:1)\n')))
    where = r"\(.*faults.py:\d+\)"
    for name, expected, line in (
        ("raise_value_error", "ValueError: a defect", 'raise ValueError\\("a defect"\\)'),
        ("raise_usage_error", "UsageError: not so", 'raise UsageError\\("not so"\\)'),
    ):
        whole = (
            rf"^stage 'faulty' failed:\n  the pass '{name}' {where} raised {expected}\n    at .*faults.py:\d+: {line}$"
        )
        with pytest.raises(StageFailed, match=whole) as caught:
            run_stages([fault(name)], module())
        assert isinstance(caught.value.__cause__, PassError)
    with pytest.raises(UsageError, match="not a pass pipeline"):
        run_stages("builtin.module(no-such-pass)", module())
    with pytest.raises(UsageError, match="calls 'no.such:thing', which is not a package.module:function here"):
        run_stages("builtin.module(fx-importer-call{no.such:thing})", module())


def test_warnings_are_forwarded():
    with pytest.warns(ContractWarning, match="it holds what it may not"):
        run_stages([fault("warn")], module())


CRASHES = {
    "abort": (Limits(), "SIGABRT", None, "cannot go on"),
    "segfault": (Limits(), "SIGSEGV", None, ""),
    "loop": (Limits(seconds=1), None, "time limit of 1 s", ""),
    "hog": (Limits(memory=300 * 2**20), None, "memory limit of 300 MiB", ""),
    "leave": (Limits(), None, None, ""),
}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.new_interpreter if each == "hog" else ()) for each in CRASHES]
)
def test_crash_raises_an_exception(name):
    limits, signal, limit, expected = CRASHES[name]
    given = module()
    before = str(given)
    with pytest.raises(CrashedError) as caught:
        run_stages([Stage("good", "", (on_functions("cse"),)), fault(name)], given, limits)
    error = caught.value
    step = f"fx-importer-call{{tests.pipelines.faults:{name}}}"
    assert (error.stage, error.pass_name, error.signal, error.limit) == ("faulty", step, signal, limit)
    how = f"was ended by the signal {signal}" if signal else f"was ended at its {limit}" if limit else "failed"
    assert str(error).startswith(f"stage 'faulty', in the pass '{step}', {how}")
    assert expected in error.output
    assert str(given) == before


def test_crash_in_a_nested_pass_names_the_pass():
    text = f"builtin.module(func.func(cse,canonicalize{{max-iterations=3}}),{fault('abort').passes[1]})"
    with pytest.raises(CrashedError) as caught:
        run_stages(text, module())
    assert caught.value.stage == "pipeline"
    passes = []
    run_stage(
        Stage("s", "", (on_functions("cse", Pass("canonicalize", {"max-iterations": 3})),)),
        module(),
        on_pass=passes.append,
    )
    assert passes == ["func.func(cse)", "func.func(canonicalize{max-iterations=3})"]


def test_time_limit_excludes_the_start():
    run_stages("builtin.module(symbol-dce)", module(), Limits(seconds=0.2))


@pytest.mark.new_interpreter
def test_process_does_not_import_torch(monkeypatch, tmp_path):
    log = tmp_path / "modules"
    (tmp_path / "spy.py").write_text(
        f"import sys\ndef spy(_module):\n    open({str(log)!r}, 'w').write(' '.join(sys.modules))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    run_stages("builtin.module(fx-importer-call{spy:spy})", module())
    assert "torch" not in log.read_text().split()


def test_printed_text_is_forwarded(capsys):
    given = module()
    isolated_runner = IsolatedStages(given)
    isolated_runner.run(Stage("s", "", (on_functions("cse"),)), print_passes=True)
    assert "IR Dump After CSE" in capsys.readouterr().err


def test_prober_continues_after_a_crash():
    prober = IsolatedProber(Limits(seconds=20))
    passed = prober.run(TEXT, stages(OutputType.TOSA), result=True)
    assert passed.error is None
    assert passed.module
    assert "tosa.clamp" in str(ir.Module.parse(passed.module, module().context))
    crashed = prober.run(TEXT, [fault("abort")])
    assert isinstance(crashed.error, CrashedError)
    assert crashed.error.signal == "SIGABRT"
    failed = prober.run(CUSTOM, stages(OutputType.TOSA))
    assert isinstance(failed.error, StageFailed)
    assert failed.error.stage == "backend-types"
    assert failed.error.diagnostics[0].message == "nothing lowered 'torch.mylib.twice'"
    assert prober.run(passed.module, "builtin.module(symbol-dce)").error is None
    with pytest.raises(UsageError, match="not a module"):
        prober.run("no module", "builtin.module(symbol-dce)")


def test_function_that_cannot_be_imported_runs_in_process():
    seen: list[str] = []

    def mark(given: ir.Operation) -> None:
        seen.append("here")
        given.attributes[f"mine.{len(seen)}"] = ir.UnitAttr.get(given.context)

    names = ("inline", mark, "symbol-dce", mark, "cse")
    mixed = Pipeline.of("mixed", *names).stages
    run_stages(mixed, there := module())
    run_here(mixed, here := module())
    assert spelled(there) == spelled(here).replace("mine.3", "mine.1").replace("mine.4", "mine.2")
    outcome = IsolatedProber().run(str(module()), mixed, result=True)
    assert outcome.module is not None
    assert len(seen) == 6
    assert "mine.6" in str(ir.Module.parse(outcome.module, here.context))


def test_unregistered_ops_are_transferred_if_allowed():
    text = 'func.func @main() { "mine.op"() : () -> () return }'
    (context := new_context()).allow_unregistered_dialects = True
    run_stages("builtin.module(cse)", given := ir.Module.parse(text, context))
    assert '"mine.op"()' in str(given)


def test_no_process_is_left_running(monkeypatch):
    started = []

    class Spied(isolated_runner.Child):
        def __init__(self, answers: str):
            super().__init__(answers)
            started.append(self.pid)

    monkeypatch.setattr(isolated_runner, "Child", Spied)
    run_stages("builtin.module(symbol-dce)", module())
    with pytest.raises(CrashedError):
        run_stages([fault("loop")], module(), Limits(seconds=0.1))
    assert len(started) == 2
    for _ in range(50):
        if not any(Path(f"/proc/{pid}").exists() for pid in started):
            return
        time.sleep(0.1)
    raise AssertionError("they still run")


def test_crash_of_a_users_pass_names_its_line_and_no_operator():
    def change(pipeline: Pipeline) -> Pipeline:
        return pipeline.after("tosa", faults.segfault)

    with pytest.raises(CrashedError) as crash:
        lower(torch.tanh, torch.ones(2), output_type="tosa", pipeline=change, isolate=True)
    assert re.fullmatch(r".*tests/pipelines/faults.py:\d+ in segfault", crash.value.where or "")
    assert f"\n  at {crash.value.where}" in str(crash.value)
    assert crash.value.causes == ()
    assert "Fatal Python error" not in str(crash.value)


def test_a_crash_after_a_pass_names_its_definition():
    """A pass that breaks the module may end without a crash, and what follows crashes."""
    error = CrashedError("stage 'mine'", "SIGSEGV", "", pass_name="fx-importer-call{tests.pipelines.faults:segfault}")
    assert re.fullmatch(r".*tests/pipelines/faults.py:16 in segfault", error.where or "")
    assert CrashedError("stage 'mine'", "SIGSEGV", "", pass_name="cse").where is None

"""Edited pipelines: steps are inserted, removed, replaced; functions are steps."""

import functools

import pytest

from fx_importer.diagnostics.mlir_diagnostics import PassError
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.pipelines import Nested, Pass, Pipeline, RewriteStep, Stage, parse_steps, run_stage

ABC = Pipeline("abc", tuple(Stage(name, f"{name} has run.", (Pass("cse"),)) for name in "abc"))
TEXT = "func.func @main() -> (i1, i1) { %0 = arith.constant true %1 = arith.constant true return %0, %1 : i1, i1 }"


def mark(module: ir.Operation) -> None:
    """Mark the module.

    And no more.
    """
    module.attributes["mine.mark"] = ir.UnitAttr.get(module.context)


class Marks:
    """A pass with state."""

    def __call__(self, module: ir.Operation) -> None:
        mark(module)


def names(pipeline: Pipeline) -> list[str]:
    return [stage.name for stage in pipeline.stages]


def test_positions_of_steps():
    assert names(ABC.before("a", mark)) == ["mark", "a", "b", "c"]
    assert names(ABC.after("b", mark)) == ["a", "b", "mark", "c"]
    assert names(ABC.replacing("b", mark)) == ["a", "mark", "c"]
    assert names(ABC.without_stage("a", "c")) == ["b"]
    assert names(ABC) == ["a", "b", "c"]
    assert names(ABC.after("c", mark, name="d").after("d", "cse")) == ["a", "b", "c", "d", "cse"]


@pytest.mark.parametrize(
    "step, name, text",
    [
        ("cse", "cse", "cse"),
        (
            "cse,func.func(canonicalize{top-down=false})",
            "cse,canonicalize",
            "cse,func.func(canonicalize{top-down=false})",
        ),
        (" builtin.module(cse, canonicalize) ", "cse,canonicalize", "cse,canonicalize"),
        (Pass("canonicalize", {"top-down": False}), "canonicalize", "canonicalize{top-down=false}"),
        (Nested("func.func", (Pass("cse"),)), "cse", "func.func(cse)"),
        ("fx-importer-fit-tosa-integers", "fx-importer-fit-tosa-integers", "fx-importer-fit-tosa-integers"),
        (mark, "mark", "fx-importer-call{tests.pipelines.test_editing:mark}"),
        (lambda module: None, "<lambda>", "fx-importer-python{<lambda>}"),
        (functools.partial(mark), "mark", "fx-importer-python{mark}"),
        (Marks(), "Marks", "fx-importer-python{Marks}"),
        (RewriteStep("own", mark), "own", "own"),
        (Stage("s", "It is s.", (Pass("cse"),)), "s", "cse"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_kinds_of_steps(step, name, text):
    stage = ABC.after("c", step).stages[-1]
    assert stage.name == name
    assert str(stage) == f"builtin.module({text})"
    assert stage.description.endswith(".")
    run_stage(stage, ir.Module.parse(TEXT, new_context()))


def test_descriptions():
    described = {stage.name: stage.description for stage in Pipeline.of("p", mark, "cse", lambda module: None).stages}
    assert described == {"mark": "Mark the module.", "cse": "'cse' has run.", "<lambda>": "'<lambda>' has run."}


def test_stage_names_are_unique():
    assert names(Pipeline.of("p", "cse", "cse", mark, "cse", mark)) == ["cse", "cse-2", "mark", "cse-3", "mark-2"]
    with pytest.raises(UsageError, match="^pipeline 'abc' has a stage 'a' already: pass another name=$"):
        ABC.after("c", mark, name="a")
    with pytest.raises(UsageError, match="^pipeline 'abc' has a stage 'b' already: pass another name=$"):
        ABC.after("c", ABC.stages[1])
    assert names(ABC.replacing("b", mark, name="b")) == ["a", "b", "c"]
    with pytest.raises(UsageError, match="^pipeline 'p' has two stages called 'a'$"):
        Pipeline("p", (ABC.stages[0], ABC.stages[0]))


@pytest.mark.parametrize(
    "change",
    [
        lambda: ABC.before("d", mark),
        lambda: ABC.after("d", mark),
        lambda: ABC.replacing("d", mark),
        lambda: ABC.without_stage("a", "d"),
    ],
)
def test_unknown_stage(change):
    with pytest.raises(UsageError, match="^pipeline 'abc' has no stage 'd'; its stages are: a, b, c$"):
        change()


@pytest.mark.parametrize(
    "step, expected",
    [
        ("csee", "'csee' does not name passes of MLIR"),
        ("cse,func.func(canonicalize{no-such=1})", "'func.func.canonicalize{no-such=1}.' does not name passes of MLIR"),
        ("builtin.module(cse", "not a pass pipeline: 'builtin.module.cse'"),
        ("", "a step of the pipeline is empty: name a pass"),
        ("builtin.module()", "a step of the pipeline is empty: name a pass"),
        (Pass("csee"), "'csee' does not name passes of MLIR"),
        ("fx-importer-call{no.such:thing}", "calls 'no.such:thing', which is not a package.module:function here"),
        ("fx-importer-python{f}", "calls the Python function 'f' of another process"),
        (
            3,
            "3 is not a step of a pipeline: pass a function that takes the module's operation, the name of ",
        ),
    ],
    ids=str,
)
def test_invalid_steps(step, expected):
    with pytest.raises(UsageError, match=expected):
        ABC.after("a", step)


def raises(module: ir.Operation) -> None:
    raise KeyError("no such thing")


def returns(module: ir.Operation) -> ir.Operation:
    return module.clone()


def breaks(module: ir.Operation) -> None:
    module.regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[2].erase()


def runs_a_pass_that_fails(module: ir.Operation) -> None:
    module.location.emit_error("first")
    ir.Module.parse("func.func @f() -> i1 { return }", module.context)


@pytest.mark.parametrize(
    "function, expected",
    [
        (raises, r"raised KeyError: 'no such thing'\n  at .*test_editing.py:\d+: raise KeyError\(\"no such thing\"\)$"),
        (
            returns,
            r"returned a value of type ModuleOp: a pass changes the module that it is given, and returns nothing$",
        ),
        (breaks, r"left a module that is not valid:\nerror: .*(terminator|empty block)"),
        (
            runs_a_pass_that_fails,
            r"raised MLIRError:\nerror: .*\n    at -:1\n  at .*_editing.py:\d+: ir.Module",
        ),
    ],
)
def test_invalid_functions(function, expected):
    code = function.__code__
    with pytest.raises(PassError, match=expected) as caught:
        run_stage(Pipeline.of("p", function).stages[0], ir.Module.parse(TEXT, new_context()))
    assert str(caught.value).startswith(f"the pass '{function.__name__}' ({__file__}:{code.co_firstlineno}) ")


def test_importable_functions_round_trip():
    (stage,) = Pipeline.of("p", mark).stages
    assert parse_steps(str(stage)) == stage.passes
    (stage,) = Pipeline.of("p", lambda module: None).stages
    with pytest.raises(UsageError, match="define it at the top of a module that can be imported"):
        parse_steps(str(stage))

"""The JIT's passes are one pipeline."""

import ast
from pathlib import Path

import torch

import fx_importer.engines.jit
from fx_importer import lower
from fx_importer.diagnostics.observers import Observer, observing
from fx_importer.engines.jit.pipeline import pipeline, pipeline_for
from fx_importer.output_types import OutputType
from fx_importer.pipelines import RewriteStep, parse_steps
from fx_importer.pipelines.runner import single_passes
from fx_importer.pipelines.stage import on_module
from fx_importer.rewrites import REWRITE_FAMILIES, REWRITES

LOADING = {"elide_weights", "link_weights", "_undefined"}
"""Functions that take a module outside of the pipeline: bytes of weights are moved out and back, and names are read."""


def test_text_of_the_pipeline_parses_back():
    for output_type in (OutputType.LINALG_ON_TENSORS, OutputType.STABLEHLO, OutputType.TOSA):
        text = str(pipeline_for(output_type))
        steps = parse_steps(text)
        assert on_module(steps) == text
        rewrites = [step for step in pipeline_for(output_type).stages[-2].passes if isinstance(step, RewriteStep)]
        assert rewrites
        assert set(rewrites) <= set(steps)


def test_loading_runs_the_passes_of_the_pipeline_in_order():
    ran: list[str] = []

    class Passes(Observer):
        def before_pass(self, name, module):
            ran.append(name)

    lowered = lower(lambda x: torch.softmax(x @ x, 0), torch.randn(40, 40), output_type="linalg-on-tensors")
    with observing(Passes()):
        lowered.caller(backend="jit")
    assert ran == [str(step) for stage in pipeline([]).stages for (step,) in single_passes(stage)]


def test_no_rewrite_is_called_outside_of_the_pipeline():
    folder = Path(fx_importer.engines.jit.__file__).parent
    functions = {step.run.__name__ for step in REWRITES.values() if hasattr(step.run, "__name__")}
    functions |= {family.function.__name__ for family in REWRITE_FAMILIES.values()}
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text())
        called = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not called & functions, path
        takes_module = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and node.args.args
            and (node.args.args[0].arg == "module")
            and {"attributes", "erase", "replace_all_uses_with"}
            & {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
        }
        assert takes_module <= LOADING, path

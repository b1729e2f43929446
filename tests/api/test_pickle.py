"""Public results and errors, pickled and deep-copied: copies are equal, or an error says what to do."""

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fx_importer
from fx_importer import errors
from fx_importer.errors import FxImporterError, UnsupportedNode, UsageError

COPIES = {"pickle": lambda value: pickle.loads(pickle.dumps(value)), "deepcopy": copy.deepcopy}
X = torch.ones(2, 3)
TREES = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.:FutureWarning")
"""Torch's own trees of arguments warn when they are copied."""
PUBLIC = sorted(
    (each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, (FxImporterError, Warning))),
    key=lambda each: each.__name__,
)


def example(kind: type[Exception]) -> Exception:
    """Return an error with an argument for each parameter of its class."""
    nodes = [UnsupportedNode("relu", "nothing lowers it", where="model.py:3")]
    values = {"call": nodes[0], "unsupported_nodes": nodes, "signal": None}
    if not any("__init__" in vars(base) for base in kind.__mro__ if base.__module__ == errors.__name__):
        return kind("a message")
    parameters = list(inspect.signature(kind).parameters.values())
    names = [each.name for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    return kind(*(values.get(name, f"the {name}") for name in names))


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_errors_keep_text_and_attributes(kind: type[Exception], copied: Callable[[Any], Any]) -> None:
    error = example(kind)
    again = copied(error)
    assert (type(again), str(again), again.args, vars(again)) == (kind, str(error), error.args, vars(error))


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("output_type", list(fx_importer.OutputType), ids=str)
def test_pipelines_are_equal(output_type: fx_importer.OutputType, copied: Callable[[Any], Any]) -> None:
    pipeline = fx_importer.pipeline_for(output_type)
    assert copied(pipeline) == pipeline
    assert [copied(stage) for stage in pipeline.stages] == list(pipeline.stages)
    assert copied(output_type) is output_type


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_traces_keep_their_stages(copied: Callable[[Any], Any]) -> None:
    trace = fx_importer.lower(torch.nn.ReLU(), X, output_type="raw").trace
    again = copied(trace)
    assert again.stages == trace.stages
    assert again.table() == trace.table()


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_callers_say_what_to_do(copied: Callable[[Any], Any]) -> None:
    caller = fx_importer.lower(torch.nn.ReLU(), X, output_type="raw").caller(backend="eager")
    with pytest.raises(UsageError, match="a caller is neither pickled nor copied: save the module"):
        copied(caller)


def test_pipeline_with_a_local_function_names_it() -> None:
    pipeline = fx_importer.Pipeline.of("mine", lambda _module: None)
    assert copy.deepcopy(pipeline) == pipeline
    assert copy.copy(pipeline) == pipeline
    with pytest.raises(UsageError, match="the pass '<lambda>' cannot be pickled.*define it at the top of a module"):
        pickle.dumps(pipeline)


@TREES
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_results_of_a_lowering_are_equal(copied: Callable[[Any], Any]) -> None:
    lowered = fx_importer.lower(torch.relu, X, output_type="torch")
    explanation = fx_importer.explain(torch.relu, X)
    for value in (lowered.manifest, explanation, lowered.manifest.functions["main"]):
        assert str(copied(value)) == str(value)


@TREES
def test_quantized_program_names_torch_export() -> None:
    pytest.importorskip("torchao")
    quantized = fx_importer.quantize(torch.nn.Linear(3, 2), [torch.arange(6.0).reshape(2, 3)])
    assert torch.equal(copy.deepcopy(quantized)(X), quantized(X))
    with pytest.raises(
        UsageError, match=r"torch\.export\.save\(torch\.export\.export\(quantized, inputs\), 'q\.pt2'\)"
    ):
        pickle.dumps(quantized)

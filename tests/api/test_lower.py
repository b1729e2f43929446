"""`lower` and `export_and_import` as functions: what `help` shows, and all options as one value."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect

import pytest
import torch

import fx_importer
from benchmarks import options_page
from fx_importer import OutputType, UsageError, export_and_import, lower
from fx_importer.api.keywords import options_of
from fx_importer.cli.option_arguments import ON_COMMAND_LINE
from fx_importer.options import GROUPS, KEYWORDS, OPTIONS, Keywords, Options


@pytest.mark.parametrize("function", [lower, export_and_import])
def test_signature_has_each_keyword_with_its_default(function):
    *_, rest = parameters = inspect.signature(function).parameters.values()
    defaults = {
        parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert defaults == {name: option.keyword_default for name, option in KEYWORDS.items()}
    assert defaults["output_type"] == "raw"
    assert defaults["mutation"] == "error"
    assert ... not in defaults.values()
    assert (rest.name, rest.kind) == ("model_kwargs", inspect.Parameter.VAR_KEYWORD)


def test_defaults_of_keywords_are_the_defaults_of_options():
    defaults = {each.keyword: each.keyword_default for each in OPTIONS if each.keyword}
    assert options_of(defaults) == options_of({}) == Options()


def test_an_option_is_declared_once():
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))
    assert Keywords.__annotations__.keys() == KEYWORDS.keys()
    fields = {f.name for kind in GROUPS.values() for f in dataclasses.fields(kind.options)} | {"output_type"}
    assert fields == set(names)
    assert {f.name for f in dataclasses.fields(Options)} == {*GROUPS, "output_type"}
    assert all(f"\n        {name}: " in (lower.__doc__ or "") for name in KEYWORDS)
    assert ON_COMMAND_LINE.keys() == {option.name for option in OPTIONS if option.has_text}
    assert {option.name for option in OPTIONS if not option.has_text} == {
        *("dynamic_shapes", "table", "extra", "pipeline", "func_visibility"),  # Python values
        *("graph", "stages", "passes"),  # their output is standard output
    }


def test_version_is_the_installed_one():
    assert fx_importer.__version__ == importlib.metadata.version("fx-importer")


def test_page_of_options_is_current():
    assert options_page.PAGE.read_text() == options_page.page(), "run python -m benchmarks.options_page"


def test_options_are_those_of_keywords():
    model, x = torch.nn.Tanh(), torch.ones(3)
    by_keyword = lower(model, x, output_type="tosa")
    whole = lower(model, x, options=Options(output_type=OutputType.TOSA))
    assert str(whole.module) == str(by_keyword.module)
    assert whole.options == by_keyword.options


def test_keyword_beside_options_is_an_error():
    with pytest.raises(UsageError, match="options= holds all options, but 'output_type' is passed with it"):
        lower(torch.nn.Tanh(), torch.ones(3), options=Options(), output_type="tosa")

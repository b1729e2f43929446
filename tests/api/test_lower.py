"""`lower` and `export_and_import` as functions: what `help` shows, and all options as one value."""

from __future__ import annotations

import inspect

import pytest
import torch

from fx_importer import OutputType, UsageError, export_and_import, lower
from fx_importer.options import Options


@pytest.mark.parametrize("function", [lower, export_and_import])
def test_each_keyword_is_in_the_signature(function):
    parameters = inspect.signature(function).parameters
    assert {"output_type", "options", "dynamic_shapes", "weights", "kwargs"} <= parameters.keys()
    assert parameters["model_kwargs"].kind is inspect.Parameter.VAR_KEYWORD


def test_options_are_those_of_keywords():
    model, x = torch.nn.Tanh(), torch.ones(3)
    by_keyword = lower(model, x, output_type="tosa")
    whole = lower(model, x, options=Options(output_type=OutputType.TOSA))
    assert str(whole.module) == str(by_keyword.module)
    assert whole.options == by_keyword.options


def test_keyword_beside_options_is_an_error():
    with pytest.raises(UsageError, match="options= holds all options, but 'output_type' is passed beside it"):
        lower(torch.nn.Tanh(), torch.ones(3), options=Options(), output_type="tosa")

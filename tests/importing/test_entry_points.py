"""Several programs in one module."""

import pytest
import torch
from torch import nn
from torch.export import export

from fx_importer import UsageError, lower


class Adds(nn.Module):
    def __init__(self, name: str, value: torch.Tensor):
        super().__init__()
        self.name = name
        self.register_buffer(name, value)

    def forward(self, x):
        return getattr(self, self.name).add_(x) + x


def test_state_is_matched_by_name():
    held = torch.zeros(2)
    programs = {
        "one": export(Adds("cache", held), (torch.ones(2),)),
        "other": export(Adds("memory", held), (torch.ones(2),)),
    }
    with pytest.raises(UsageError, match="'memory' of 'other' is 'cache' of 'one'"):
        lower(programs, mutation="functional")


def test_state_has_one_type():
    programs = {
        "one": export(Adds("cache", torch.zeros(2)), (torch.ones(2),)),
        "other": export(Adds("cache", torch.zeros(3)), (torch.ones(3),)),
    }
    with pytest.raises(UsageError, match=r"'cache' is float32\[2\] in 'one', but float32\[3\] in 'other'"):
        lower(programs, mutation="functional")


def test_different_weights_of_one_name():
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    x = torch.ones(1, 2)
    caller = lower({"one": export(one, (x,)), "other": export(other, (x,))}, output_type="linalg").caller()
    for name, model in (("one", one), ("other", other)):
        torch.testing.assert_close(caller[name](x), model(x).detach())


PROGRAM = export(nn.ReLU(), (torch.ones(2),))


@pytest.mark.parametrize(
    ("programs", "args", "options", "sentence"),
    [
        ({}, (), {}, "there are none"),
        ({"main": nn.ReLU()}, (), {}, "'main' is of type ReLU: export each first"),
        ({"main": PROGRAM}, (torch.ones(2),), {}, "inputs and func_name have no place"),
        ({"main": PROGRAM}, (), {"func_name": "f"}, "inputs and func_name have no place"),
    ],
    ids=["none", "module", "inputs", "name"],
)
def test_invalid_entry_points(programs, args, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        lower(programs, *args, **options)


def test_caller_requires_a_function_name():
    caller = lower({"one": PROGRAM, "other": PROGRAM}, output_type="linalg").caller()
    with pytest.raises(UsageError, match=r"caller\['one'\]"):
        caller(torch.ones(2))
    with pytest.raises(UsageError, match="no function 'third': there is 'one', 'other'"):
        caller["third"]

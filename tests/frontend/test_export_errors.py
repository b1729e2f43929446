"""Errors of torch.export name the line of the model, what fixed a size, and what is taken instead."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fx_importer import lower
from fx_importer.errors import ExportError
from fx_importer.frontend.export import export_program
from fx_importer.frontend.python_functions import WITH_DYNAMIC_SIZES
from fx_importer.options import Capture, ExportOptions

pytestmark = pytest.mark.advice

BATCH = ({0: Dim("batch", max=64)},)
WINDOWS = ("hann_window", "hamming_window", "bartlett_window", "blackman_window", "kaiser_window")


def refusal(f: Callable[..., Any], *args: Any, dynamic_shapes: Any = None, strict: bool = False) -> ExportError:
    with pytest.raises(ExportError) as raised:
        export_program(f, args, {}, ExportOptions(dynamic_shapes, strict, Capture.EXPORT))
    return raised.value


def positions(x):
    return x + torch.logspace(0, 1, x.shape[0])[:, None]


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(5))

    def forward(self, x):
        return x.T * self.weight


FIXED = {
    "logspace": (positions, "logspace", r"x \+ torch.logspace"),
    "window": (lambda x: x * torch.hann_window(x.shape[0])[:, None], "hann_window", "lambda x: x"),
    "triangle": (lambda x: x[torch.tril_indices(x.shape[0], 2)[0]], "tril_indices", "lambda x: x"),
    "range": (lambda x: x * torch.tensor(list(range(x.shape[0])))[:, None], "", "lambda x: x"),
    "branch": (lambda x: x * 2 if x.shape[0] == 5 else x, "", "lambda x: x"),
    "weight": (Weighted(), "mul", r"return x.T \* self.weight"),
}


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("shapes", [BATCH, ({0: "batch"},), [("batch", None)]], ids=["dim", "string", "list"])
def test_fixed_size_names_the_dimension_the_function_and_the_line(name: str, shapes: Any) -> None:
    f, function, source = FIXED[name]
    text = str(refusal(f, torch.randn(5, 3), dynamic_shapes=shapes))
    assert f"batch (axis 0 of x) is 5{', in ' + function if function else ''}\n" in text
    assert re.search(rf"at {re.escape(__file__)}:\d+: .*{source}", text)
    assert "You marked" not in text


def test_fixed_sizes_with_strict_and_of_nested_inputs() -> None:
    text = str(refusal(positions, torch.randn(5, 3), dynamic_shapes=BATCH, strict=True))
    assert "batch (axis 0 of x) is 5, in logspace\n" in text
    assert f"at {__file__}:" in text
    assert "User stack" not in text

    def nested(inputs):
        return inputs["a"][0] + torch.logspace(0, 1, inputs["a"][0].shape[0])

    shapes = {"inputs": {"a": [{0: Dim.DYNAMIC}]}}
    assert "axis 0 of inputs['a'][0] is 5" in str(refusal(nested, {"a": [torch.ones(5)]}, dynamic_shapes=shapes))


@pytest.mark.parametrize("function", WITH_DYNAMIC_SIZES)
def test_expressions_of_dynamic_sizes_are_equal_and_exported(function: str) -> None:
    expression = WITH_DYNAMIC_SIZES[function]
    values = {"torch": torch, "start": 1.0, "end": 3.0, "base": 2.0}
    eager = (
        getattr(torch.fft, function.removeprefix("fft_")) if function.startswith("fft_") else getattr(torch, function)
    )

    def expected(x, n, m):
        arguments = {"linspace": (1.0, 3.0, n), "logspace": (1.0, 3.0, n, 2.0), "vander": (x[:, 0], n, True)}
        return eager(*arguments.get(function, (n, m) if function.endswith("indices") else (n,)))

    def written(x):
        sizes = {"n": x.shape[0], "m": x.shape[1], "x": x[:, 0]}
        return eval(expression, values | sizes)

    for n in (5, 8):
        torch.testing.assert_close(written(torch.ones(n, 3)), expected(torch.ones(n, 3), n, 3), check_dtype=False)
    program = export_program(written, (torch.ones(5, 3),), {}, ExportOptions(dynamic_shapes=BATCH))
    torch.testing.assert_close(program.module()(torch.ones(7, 3)), written(torch.ones(7, 3)))


class Packed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(3, 4, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


BYTES = torch.tensor([0, 1, 3], dtype=torch.uint8)
REFUSED = {
    "nll_loss": (lambda x, t: F.nll_loss(x, t), (torch.randn(3, 4), BYTES), "nll_loss takes int64 .*with .long()"),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), (torch.randn(3, 4), BYTES), "cross_entropy takes int64"),
    "one_hot": (lambda t: F.one_hot(t), (BYTES.long(),), "one_hot without num_classes .*: pass num_classes"),
    "packed": (Packed(), (torch.randn(2, 5, 3), torch.tensor([5, 3])), "A packed sequence .* mask of the lengths"),
    "int": (lambda x, n: x[: int(n)], (torch.ones(4), torch.tensor(2)), r"read it with .item\(\)"),
    "branch": (lambda x: x if x.sum() > 0 else -x, (torch.ones(2),), "torch.cond"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_the_line_and_the_way_out(name: str) -> None:
    f, inputs, advice = REFUSED[name]
    error = refusal(f, *inputs)
    assert re.search(advice, str(error))
    assert __file__ in str(error)
    assert error.where.startswith(f"{__file__}:")
    assert "TORCH_LOGS" not in str(error)
    assert "DEBUG_CPP" not in str(error)


def test_error_is_pickled_without_inputs() -> None:
    error = refusal(lambda x, t: F.nll_loss(x, t), torch.randn(3, 4), BYTES)
    assert [change.text for change in error.changes] == ["t.long(): int64 instead of torch.uint8"]
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.where, copy.changes) == (str(error), error.where, ())


def test_submodule_with_the_name_of_a_method_is_captured() -> None:
    model = torch.nn.Sequential()
    for name in ("parameters", "named_modules"):
        setattr(model, name, torch.nn.Linear(3, 3))
    x = torch.ones(2, 3)
    lowered = lower(model, x, output_type="linalg-on-tensors")
    torch.testing.assert_close(lowered.run(x), model(x).detach())


@pytest.mark.parametrize("name", ["parameters", "named_buffers"])
def test_attribute_with_the_name_of_a_method_is_an_error_of_the_export(name: str) -> None:
    model = torch.nn.Linear(3, 3)
    model.__dict__[name] = torch.nn.Identity()
    with pytest.raises(ExportError, match="cannot capture Linear"):
        lower(model, torch.ones(2, 3))

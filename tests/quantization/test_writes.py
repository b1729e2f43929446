"""Quantized programs that write to memory: through views, to their state, and to their inputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fx_importer import Inputs, lower, quantize
from fx_importer.api.accuracy import accuracy
from fx_importer.errors import UnsupportedProgramError
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import dequantize
from tests.quantization.quantize_operators import quantize as quantized

OUTPUT_TYPES = [pytest.param("tosa", marks=needs_tosa), "linalg-on-tensors", "stablehlo"]

WRITES: dict[str, Callable[[Tensor], object]] = {
    "select": lambda y: y[:, 0].fill_(1.0),
    "slice": lambda y: y[:, 1:3].mul_(0.5),
    "steps": lambda y: y[:, ::2].neg_(),
    "narrow": lambda y: y.narrow(1, 1, 2).zero_(),
    "diagonal": lambda y: y.diagonal().fill_(-1.0),
    "t": lambda y: y.t()[1].add_(1.0),
    "transpose": lambda y: y.transpose(0, 1)[2:].relu_(),
    "view": lambda y: y.view(2, 2, 4)[1, 0].mul_(2.0),
    "unsqueeze": lambda y: y.unsqueeze(1)[:, :, 3].copy_(y[:, :1]),
    "split": lambda y: y.split(2, 1)[1].sub_(0.5),
    "chunk": lambda y: y.chunk(2)[0].clamp_(-0.2, 0.3),
    "unbind": lambda y: y.unbind(1)[2].abs_(),
    "unfold": lambda y: y.unfold(1, 2, 3)[:, 0].mul_(2.0),
    "as_strided": lambda y: y.as_strided((2, 2), (8, 2), 1).fill_(2.0),
    "index_put": lambda y: y.index_put_((torch.tensor([0, 3]),), torch.tensor(1.5)),
    "masked_fill": lambda y: y[:, :2].masked_fill_(y[:, :2] > 0, 0.0),
}


def step_of(write: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    def model(x: Tensor) -> Tensor:
        y = dequantize(x)
        write(y)
        return quantized(y + y)

    return model


def steps(found: Tensor, expected: Tensor) -> int:
    return int((found.int() - expected.int()).abs().max())


@pytest.mark.parametrize("name", WRITES)
def test_writes_through_views(name: str) -> None:
    model, x = step_of(WRITES[name]), torch.arange(-32, 32, 4, dtype=torch.int8).reshape(4, 4)
    lowered = lower(model, x, output_type="linalg-on-tensors", quantized="integer")
    assert steps(lowered.run(x), model(x)) <= 1
    assert lowered.verify(x, backends=["jit"])


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
@pytest.mark.parametrize("name", ["slice", "diagonal", "unfold"])
def test_writes_in_every_output_type(name: str, output_type: str) -> None:
    model, x = step_of(WRITES[name]), torch.arange(-32, 32, 4, dtype=torch.int8).reshape(4, 4)
    assert steps(lower(model, x, output_type=output_type, quantized="integer").run(x), model(x)) <= 1


def test_writes_to_dynamic_sizes() -> None:
    rows = torch.export.Dim("rows", min=2)
    model = step_of(WRITES["slice"])
    x = torch.arange(-32, 32, 4, dtype=torch.int8).reshape(4, 4)
    shapes = ({0: rows},)
    lowered = lower(model, x, output_type="linalg-on-tensors", quantized="integer", dynamic_shapes=shapes)
    for each in (x, x[:3], x.repeat(2, 1)):
        assert steps(lowered.run(each), model(each)) <= 1


class Stream(torch.nn.Module):
    """Returns its last input with the new one, and counts its calls."""

    past: Tensor
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("past", torch.zeros(2, 2))
        self.register_buffer("calls", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        past = dequantize(quantized(self.past, 0.02, -11))
        new = dequantize(x)
        self.past[:, 0] = new[:, 0]  # through a view
        self.past[:, 1:].copy_(new[:, 1:])
        self.calls.add_(1)
        return quantized(torch.cat([past, new], -1)), self.calls * 2


STREAM = [torch.tensor([[start, start + 1], [-start, 3]], dtype=torch.int8) for start in (10, 20, 30)]


@pytest.mark.parametrize(
    ("output_type", "mutation"), [("tosa", "functional"), ("linalg-on-tensors", "mutable"), ("stablehlo", "functional")]
)
def test_state_changes_from_call_to_call(output_type: str, mutation: str) -> None:
    eager = Stream()
    expected = [(a.tolist(), b.tolist()) for a, b in map(eager, STREAM)]
    lowered = lower(Stream(), STREAM[0], output_type=output_type, mutation=mutation, quantized="integer")
    caller = lowered.caller()
    found = [(a.tolist(), b.tolist()) for a, b in map(caller, STREAM)]
    assert found == expected
    calls = [Inputs((each,)) for each in STREAM]
    assert lowered.verify(inputs=calls, backends=["jit" if output_type == "linalg-on-tensors" else "eager"])


class Decoder(torch.nn.Module):
    """Adds an embedding of its position, and keeps its results in a cache."""

    position: Tensor
    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.linear = torch.nn.Embedding(16, 4), torch.nn.Linear(4, 4)
        self.register_buffer("position", torch.zeros(1, dtype=torch.long))
        self.register_buffer("cache", torch.zeros(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x + self.embed(self.position))
        self.cache.index_copy_(0, self.position, y)
        self.position.add_(1)
        return y + self.cache.sum(0)


@pytest.fixture
def decoder() -> tuple[Decoder, list[Tensor]]:
    torch.manual_seed(0)
    return Decoder().eval(), [torch.randn(1, 4) for _ in range(4)]


def ratio(found: Tensor, expected: Tensor) -> float:
    return 20 * math.log10(float(expected.detach().norm() / (found - expected).detach().norm()))


def test_quantized_state(decoder: tuple[Decoder, list[Tensor]]) -> None:
    model, calls = decoder
    before = copy.deepcopy(model.state_dict())
    result = quantize(model, calls)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    state = dict(result.named_buffers())
    assert state["position"].item() == 0
    assert not state["cache"].any()
    lowered = lower(result, calls[0], output_type="tosa", mutation="functional", quantized="integer")
    integers = lowered.caller(backend="eager")
    for x in calls:
        expected = model(x)
        assert ratio(result(x), expected) > 20
        assert ratio(integers(x), expected) > 20
    assert model.position.item() == state["position"].item() == 4


def test_accuracy_leaves_state_as_it_is(decoder: tuple[Decoder, list[Tensor]]) -> None:
    model, calls = decoder
    result = quantize(model, calls)
    found = accuracy(model, result, calls)
    assert found.result > 20
    assert model.position.item() == result.get_buffer("position").item() == 0


def test_written_inputs_of_calibration_stay_as_they_are() -> None:
    def step(x: Tensor, cache: Tensor) -> Tensor:
        cache[0] = x @ x.t()
        return cache * 2

    x, cache = torch.rand(2, 2), torch.zeros(3, 2, 2)
    result = quantize(step, [(x, cache), (x + 1, cache)])
    assert not cache.any()
    written = cache.clone()
    assert ratio(result(x, written), step(x, cache)) > 20
    assert ratio(written, cache) > 20


def test_state_that_is_exchanged() -> None:
    class Exchange(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.ones(2, 2))
            self.register_buffer("b", torch.full((2, 2), 3.0))

        def forward(self, x: Tensor) -> Tensor:
            a = self.get_buffer("a").clone()
            self.get_buffer("a").copy_(self.get_buffer("b"))
            self.get_buffer("b").copy_(a)
            return x @ self.get_buffer("a")

    model, x = Exchange(), torch.rand(2, 2)
    result = quantize(model, [x, x])
    for _ in range(3):
        assert ratio(result(x), model(x)) > 20


def test_states_that_become_equal() -> None:
    class Follow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.ones(2, 2))
            self.register_buffer("b", torch.full((2, 2), 3.0))

        def forward(self, x: Tensor) -> Tensor:
            read = x @ self.get_buffer("b")
            self.get_buffer("a").view(4).copy_(x.reshape(4))
            self.get_buffer("b").copy_(self.get_buffer("a"))
            return read

    model, x = Follow(), torch.rand(2, 2)
    result, caller = (
        quantize(model, [x, x]),
        lower(model, x, output_type="linalg-on-tensors", mutation="functional").caller(),
    )
    for _ in range(2):
        expected = model(x)
        assert ratio(result(x), expected) > 20
        torch.testing.assert_close(caller(x), expected)
    assert all(torch.equal(caller.state[name], x) for name in ("a", "b"))


def test_writes_to_expanded_tensors_are_refused() -> None:
    with pytest.raises(UnsupportedProgramError, match="elements share memory"):
        quantize(lambda x: (x @ x)[:1].expand(2, 2).mul_(2.0), [torch.rand(2, 2)])

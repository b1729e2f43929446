"""Programs of whole tensors that XLA divides among eight devices, beside the model in eager."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.tensor import Shard

from fx_importer import Lowered, lower
from fx_importer.distributed.communication import Collective
from fx_importer.engines.xla import xla_backend as xla
from fx_importer.engines.xla import xla_program
from fx_importer.errors import UsageError
from tests.distributed.test_on_devices import needs_xla

TENSOR = {"0.*": {"tp": 0}, "2.weight": {"tp": 1}, "input": {"dp": 0}, "output": {"dp": 0}}
X = torch.randn(8, 16, generator=torch.manual_seed(0))


@pytest.fixture(scope="module")
def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))


@pytest.fixture(scope="module")
def whole(model: torch.nn.Sequential) -> Lowered:
    return lower(model, X, output_type="stablehlo", weights="args")


@pytest.mark.parametrize(
    "mesh, plan, collective",
    [
        ("dp=2,tp=4", TENSOR, Collective("all_reduce", "f32[4,16]", 4, ("tp",), 1, 256)),
        ("tp=8", {"0.*": 0, "2.weight": Shard(1)}, Collective("all_reduce", "f32[8,16]", 8, ("tp",), 1, 512)),
    ],
)
def test_divided_without_lowering_again(
    model: torch.nn.Sequential, whole: Lowered, mesh: str, plan: dict[str, object], collective: Collective
):
    divided = whole.on_mesh(mesh, plan)
    assert divided.communication().collectives == (collective,)
    torch.testing.assert_close(divided.caller(backend="xla")(X), model(X))
    assert "mhlo.sharding" not in str(whole.module)


def test_weights_divided_along_two_axes(model: torch.nn.Sequential, whole: Lowered):
    plan = {**TENSOR, "0.weight": {"tp": 0, "dp": 0}, "2.weight": {"dp": 0, "tp": 1}, "2.bias": {"dp": 0}}
    divided = whole.on_mesh("dp=2,tp=4", plan)
    assert {each.kind for each in divided.communication().collectives} >= {"all_gather"}
    torch.testing.assert_close(divided.caller(backend="xla")(X), model(X))


@needs_xla
def test_verified_beside_eager(whole: Lowered):
    verdict = whole.on_mesh("dp=2,tp=4", TENSOR).verify(backends=["xla", "stablehlo"])
    assert verdict
    assert len(verdict.checks) == 2


def test_weights_are_placed_again_when_they_change(model: torch.nn.Sequential, whole: Lowered):
    caller = whole.on_mesh("tp=8", {"0.*": 0, "2.weight": 1}).caller(backend="xla")
    before = caller(X)
    with torch.no_grad():
        model.state_dict()["2.bias"].add_(1)
    torch.testing.assert_close(caller(X), before + 1)


class Cache(torch.nn.Module):
    """A cache of rows that stays divided between calls, and what attends to it."""

    def __init__(self):
        super().__init__()
        self.rows: torch.Tensor
        self.register_buffer("rows", torch.zeros(8, 16, 4))

    def forward(self, x, at):
        self.rows.index_copy_(1, at, x)
        return torch.softmax(x @ self.rows.mT, -1) @ self.rows


def test_state_stays_divided():
    x, at = torch.randn(8, 1, 4), torch.tensor([3])
    plan = {"rows": {"tp": 0}, "x": {"tp": 0}}
    made = lower(Cache(), x, at, output_type="stablehlo", mutation="functional", mesh="tp=8", plan=plan)
    assert [each.sharding for each in made.manifest.functions["main"].results] == [(("tp",), (), ()), None]
    assert made.communication().collectives == ()
    caller, eager = made.caller(backend="xla"), Cache()
    for step in range(3):
        torch.testing.assert_close(caller(x + step, at + step), eager(x + step, at + step))
    (shard,) = {each.data.shape for each in caller.state.held["rows"].array.addressable_shards}
    assert shard == (1, 16, 4)
    torch.testing.assert_close(caller.state["rows"], eager.rows)


def test_whole_programs_have_no_ranks(whole: Lowered):
    with pytest.raises(UsageError, match=r"takes whole tensors: run it with caller\(backend='xla'\)"):
        whole.on_mesh("tp=8", {"0.*": 0}).caller_on_mesh()


def test_functions_with_state_share_weights_on_devices(monkeypatch: pytest.MonkeyPatch):
    placed: list[tuple[int, ...]] = []

    def put(jax, place, tensor):
        placed.append(tuple(tensor.shape))
        return xla_program.put(jax, place, tensor)

    monkeypatch.setattr(xla, "put", put)

    class Counted(torch.nn.Linear):
        def __init__(self):
            super().__init__(4, 8)
            self.calls: torch.Tensor
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, input):
            self.calls.add_(1)
            return super().forward(input) * self.calls

    model, x = Counted().requires_grad_(False), torch.randn(2, 4)
    programs = {name: torch.export.export(model, (x[:size],)) for name, size in (("one", 1), ("two", 2))}
    plan = {"weight": {"tp": 0}}
    lowered = lower(programs, output_type="stablehlo", mutation="functional", weights="args", mesh="tp=8", plan=plan)
    caller = lowered.caller(backend="xla")
    for call in range(1, 4):
        name, size = ("one", 1) if call == 2 else ("two", 2)
        expected = torch.nn.functional.linear(x[:size], model.weight, model.bias) * call
        torch.testing.assert_close(caller[name](x[:size]), expected)
    assert placed.count((8, 4)) == placed.count((8,)) == 1

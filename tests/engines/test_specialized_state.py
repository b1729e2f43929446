"""State of functions with dynamic sizes stays on the device, whatever the sizes of a call."""

import pytest
import torch

from fx_importer import lower
from fx_importer.calls import specialization
from fx_importer.calls.state import OnDevice
from fx_importer.process.optional_packages import is_installed


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows: torch.Tensor
        self.register_buffer("rows", torch.zeros(8, 4))

    def forward(self, row, position, seen):
        self.rows.index_copy_(0, position, row)
        return self.rows.index_select(0, seen)


@pytest.mark.parametrize("engine, package", [("xla", "jax"), ("iree", "iree.compiler")])
def test_state_is_kept_by_specializations(engine, package):
    if not is_installed(package):
        pytest.skip(f"the extra '{engine}' is not installed")
    model = Rows()
    example = (torch.ones(1, 4), torch.tensor([3]), torch.tensor([1, 2, 3]))
    lowered = lower(
        model,
        *example,
        output_type="stablehlo",
        mutation="functional",
        dynamic_shapes=(None, None, {0: torch.export.Dim("seen", min=1, max=8)}),
    )
    caller = lowered.caller(backend=engine)
    for step, seen in enumerate(([0, 1], [1], [0, 1, 2], [2, 1])):
        arguments = torch.randn(1, 4), torch.tensor([step]), torch.tensor(seen)
        torch.testing.assert_close(caller(*arguments), model(*arguments))
        assert isinstance(caller.state.held["rows"], OnDevice)
    torch.testing.assert_close(caller.state["rows"], model.rows)


def test_specializations_used_longest_ago_make_room(monkeypatch: pytest.MonkeyPatch):
    if not is_installed("jax"):
        pytest.skip("the extra 'xla' is not installed")
    compiled: list[tuple[int, ...]] = []
    specialize = specialization._specialize

    def counted(module, shapes, numbers=()):
        compiled.append(tuple(len(shape) and shape[0] for shape in shapes))
        return specialize(module, shapes, numbers)

    monkeypatch.setattr(specialization, "_specialize", counted)
    monkeypatch.setattr(specialization, "MOST", 2)
    rows = {0: torch.export.Dim("rows", min=0, max=8)}
    caller = lower(lambda x: x * 2, torch.ones(2, 3), output_type="stablehlo", dynamic_shapes=(rows,)).caller(
        backend="xla"
    )
    for size in (1, 0, 1, 3, 1, 0):
        x = torch.randn(size, 3)
        torch.testing.assert_close(caller(x), x * 2)
    assert compiled == [(1,), (0,), (3,), (0,)]

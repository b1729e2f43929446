"""Programs saved by torch.export.save and loaded again import like the originals."""

import io
import re

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim, export, load, save

from fx_importer import lower
from testing.zoo import ZOO


class Kept(torch.nn.Module):
    """All kinds of tensors that a program holds, and a mutated one."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))
        self.constant = torch.rand(3)
        self.persistent: torch.Tensor
        self.register_buffer("persistent", torch.rand(3))
        self.passing: torch.Tensor
        self.register_buffer("passing", torch.rand(3), persistent=False)
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.add_(x.sum(0))
        return {
            "y": x * self.weight + self.constant - self.persistent * self.passing,
            "seen": self.seen * torch.tensor(2.0),
        }


class Flow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda t: t + self.weight, lambda t: t - self.weight, (x,))
        n = torch.tensor(3)
        return while_loop(lambda i, t: i > 0, lambda i, t: (i - 1, t * 2), (n, y))[1]


CASES = {
    "state": (Kept, (torch.ones(2, 3),), ({0: Dim("rows")},)),
    "flow": (Flow, (torch.ones(3),), None),
    **{name: (lambda name=name: ZOO[name].build()[0], None, None) for name in ("bert_small", "resnet_small", "gru")},
}


def without_symbols(text: str) -> str:
    """Return ``text`` without names of symbols, which loading numbers anew."""
    return re.sub(r'"s\d+"', '"s"', text)


@pytest.mark.slow_rows("torch-(bert_small|resnet_small|gru|flow)", "linalg-resnet_small", "linalg-(gru|bert_small)")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("output_type", ["torch", "linalg"])
def test_loaded_program_imports_the_same(case, output_type):
    torch.manual_seed(0)
    build, inputs, shapes = CASES[case]
    model = build().eval()
    if inputs is None:
        inputs = ZOO[case].build()[1]
    with torch.no_grad():
        program = export(model, inputs, dynamic_shapes=shapes)
    save(program, file := io.BytesIO())
    loaded = load(io.BytesIO(file.getvalue()))
    fresh, read = (lower(p, output_type=output_type, mutation="functional") for p in (program, loaded))
    assert without_symbols(str(fresh.module)) == without_symbols(str(read.module))
    assert fresh.manifest.state.keys() == read.manifest.state.keys()

"""Operators that mutate views of their arguments agree with eager."""

import re

import pytest
import torch

from fx_importer import export_and_import, lower_mlir_module
from fx_importer.engines import JitBackend
from fx_importer.mlir.bindings import ir


@torch.library.custom_op("e2e_views::scale", mutates_args={"x"})
def scale(x: torch.Tensor, by: torch.Tensor) -> None:
    x.mul_(by)


VIEWS = {
    "whole": lambda x: x,
    "alias": lambda x: x.view(4, 6),
    "rows": lambda x: x[1:3],
    "columns": lambda x: x[:, 2:5],
    "row": lambda x: x[2],
    "part of a row": lambda x: x[2, 1:4],
    "steps": lambda x: x[::2, 1::3],
    "transposed": lambda x: x.t(),
    "transposed part": lambda x: x.t()[1:3, ::2],
    "flat": lambda x: x.view(-1)[5:17],
    "diagonal": lambda x: x.diagonal(),
    "view of a transposed base": lambda x: x.t().contiguous().t()[1:3],
}


class Scales(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x, by):
        x = x * 2
        torch.ops.e2e_views.scale(VIEWS[self.name](x), by)
        return x + 1


@pytest.mark.slow_rows(
    "^transposed part$",
    "^flat$",
    "^diagonal$",
    "^view of a transposed base$",
    "^steps$",
    "^part of a row$",
    "^transposed$",
    "^row$",
)
@pytest.mark.parametrize("name", VIEWS)
def test_mutated_views_agree_with_eager(name):
    x, by = torch.arange(24.0).reshape(4, 6), torch.tensor(-3.0)
    module = export_and_import(Scales(name), x, by, output_type="torch")
    # A user's lowering of the operator, which returns the new value of the mutated argument:
    text, found = re.subn(r'torch.operator "torch.e2e_views.scale"\((.*?)\) : \((.*?)\) ->', mul, str(module))
    expected = Scales(name)(x, by)
    assert found == 1 or name == "view of a transposed base"  # whose copy nothing reads
    lowered = ir.Module.parse(text, module.context)
    lower_mlir_module(False, "linalg-on-tensors", lowered)
    (result,) = JitBackend().load(lowered, "main")(x, by)
    torch.testing.assert_close(result, expected)


def mul(match: re.Match[str]) -> str:
    return f"torch.aten.mul.Tensor {match[1]} : {match[2]} ->"

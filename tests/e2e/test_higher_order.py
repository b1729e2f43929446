"""Control flow over scalars, symbolic sizes and parameters; operators with subgraphs: equal to eager in linalg."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fx_importer import lower


def size_as_predicate(model, x):
    return torch.cond(x.shape[0] > 4, lambda x: x * x.shape[0], lambda x: x.sin() + model.weight, (x,))


def results_of_two_sizes(model, x):
    return torch.cond(x.sum() > 0, lambda x: x[1:].clone(), lambda x: torch.cat([x, x]), (x,)) + model.weight


def sizes_in_branches(model, x):
    y = x[1:].clone()
    return torch.cond(x.sum() > 0, lambda x: x[1:] * y.shape[0], lambda x: y - model.weight * x.shape[0], (x,))


def carried_size(model, x):
    return while_loop(lambda k, t: k < 2 * x.shape[0], lambda k, t: (k + 1, t * 0.5 + k), (x.shape[0], x.clone()))


def carried_number(model, x):
    return while_loop(lambda k, t: k < 4, lambda k, t: (k + 1, t * model.weight + k), (0, x.clone()))


def carried_tensor_without_inputs(model, x):
    return while_loop(lambda i, t: i < 5, lambda i, t: (i + 1, t * i), (torch.tensor(1), x.clone()))


def branch_over_a_parameter_in_a_loop(model, x):
    def body(i, t):
        t = torch.cond(t.sum() > 3, lambda t: t * model.weight, lambda t: t + x + x.shape[0], (t,))
        return i - 1, t

    return while_loop(lambda i, t: i > 0, body, (torch.tensor(3), x.clone()))


def wrapped_with_hints(model, x):
    return hints_wrapper(lambda x: torch.nn.functional.silu(x) + 1, (x,), {}, hints={"where": "there"})


def shared_subgraph(model, x):
    first, _ = invoke_subgraph(model.region, "region", x, model.weight)
    second, sine = invoke_subgraph(model.region, "region", first, model.weight)
    return second + sine


def wider_product(model, x):
    narrow = (x * 30).to(torch.int8).unsqueeze(0)
    return out_dtype(torch.ops.aten.mm.default, torch.int32, narrow, narrow.T.contiguous())


def wider_multiple(model, x):
    return out_dtype(torch.ops.aten.mul.Tensor, torch.float64, x, x)


PROGRAMS: list[Callable[..., Any]] = [
    *(size_as_predicate, results_of_two_sizes, sizes_in_branches, carried_size, carried_number),
    *(carried_tensor_without_inputs, branch_over_a_parameter_in_a_loop),
    *(wrapped_with_hints, shared_subgraph, wider_product, wider_multiple),
]


class Model(torch.nn.Module):
    def __init__(self, program: Callable[..., Any]):
        super().__init__()
        self.program = program
        self.weight = torch.nn.Parameter(torch.tensor(1.5), requires_grad=False)
        self.region = make_fx(lambda x, weight: (x.cos() * weight, x.sin()))(torch.ones(2), torch.tensor(1.5))

    def forward(self, x):
        return self.program(self, x)


@pytest.mark.slow_rows(
    "^branch_over_a_parameter_in_a_loop$",
    "^carried_tensor_without_inputs$",
    "^carried_size$",
    "^sizes_in_branches$",
    "^results_of_two_sizes$",
    "^carried_number$",
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_agrees_with_eager_at_every_size(program):
    torch._dynamo.reset()
    model = Model(program)
    example = torch.linspace(-1, 2, 7)
    lowered = lower(model, example, dynamic_shapes=({0: Dim("size", min=3)},), output_type="linalg")
    for x in (torch.linspace(-1, 2, 3), torch.linspace(-1, 1.5, 4), torch.linspace(-2, 1, 6)):
        results, expected = pytree.tree_leaves(lowered.run(x)), pytree.tree_leaves(model(x))
        torch.testing.assert_close(results, expected)

"""Control flow in every dialect: both branches, and several trip counts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils import _pytree as pytree

from fx_importer import UnsupportedProgramError, lower
from fx_importer.dynamo import torch_compile
from fx_importer.results.lowered import Lowered

from .harness import assert_loops_bufferize

DIALECTS = ["linalg", "tosa", "stablehlo"]


def branches(x):
    offset = torch.tensor([0.0, 1.0, 2.0])

    def inner(t):
        return torch.cond(t.max() > -1, lambda u: u * 3, lambda u: u - offset, (t,))

    return torch.cond(x.sum() > 0, lambda t: t + offset, inner, (x,))


def several_results(x):
    y = x.exp()
    return torch.cond(x.sum(0, keepdim=True) > 0, lambda t: (t * y, t.sum()), lambda t: (t - y, t.amax()), (x,))


def number_as_predicate(x):
    return torch.cond(x.sum().to(torch.bool), lambda t: t + 1, lambda t: t - 1, (x,))


def branches_of_other_strides(x):
    """Branches that decompositions give results with strides of different orders, where export has equal ones."""
    rows = x.reshape(1, 3, 1) * torch.tensor([1.0, 2.0])

    def normalized(t):
        return torch.nn.functional.layer_norm(t.transpose(1, 2), [3])

    return torch.cond(x.sum() > 0, normalized, lambda t: t.transpose(1, 2).cumsum(-1), (rows,))


def choice(x):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda x, y: (x.clone(), y.clone()), lambda x, y: (y.clone(), x + 1), (x, y))


def loop(n, x):
    return while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, x * 2 + i), (n, x))


def swap(n, x):
    # Each value is still read after it has been overwritten.
    return while_loop(lambda i, x, y: i > 0, lambda i, x, y: (i - 1, y.clone(), y.flip(0) + x), (n, x, x * 3))


def same_start(n, x):
    def body(i, x, a, b):
        return i - 1, x + 1, x.cumsum(0), b + x

    return while_loop(lambda i, x, a, b: i > 0, body, (n, x, torch.zeros(2), torch.zeros(2)))


def same_operand(n, x):
    return while_loop(lambda i, a, b: i > 0, lambda i, a, b: (i - 1, a + x.flip(0).sum(), b + a), (n, x, x))


def branch_in_a_loop(n, x):
    def body(i, x):
        return i - 1, torch.cond(x.sum() > 8, lambda x: x - 1, lambda x: x * 2, (x,))

    return while_loop(lambda i, x: i > 0, body, (n, x))


def loop_in_a_branch(n, x):
    return torch.cond(n > 2, lambda n, x: loop(n, x)[1], lambda n, x: x + 0.5, (n, x))


def loop_in_a_loop(n, x):
    return while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, loop(i, x)[1]), (n, x))


def closures(n, x):
    y = x * 2
    matrix = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    return while_loop(lambda i, x: (i > 0) & (y.sum() > 0), lambda i, x: (i - 1, matrix @ x + y), (n, x))


def true_at_first(x):
    # A condition that is constant before the loop, but not after the first iteration.
    return while_loop(lambda go, x: go.clone(), lambda go, x: (x.sum() < 20, x * 2), (torch.tensor(True), x))


def scanned(x):
    def combine(state: Any, row: Any):
        return state + row.sum(), torch.stack([state * row[0], state])

    return scan(combine, x[0, 0], x)


def mapped(x, y):
    def combine(row: Any, y: Any):
        return row * y.sum() - 1

    return torch_map(combine, x, y)


def recurrence(a, b):
    return associative_scan_op(lambda a0, b0, a1, b1: [a0 * a1, b0 * a1 + b1], [a, b], ())


def constants_in_branches(x):
    def positive(x):
        shift = torch.tensor([1.0, 0.0, 2.0])
        return torch.cond(x.sum() > torch.tensor(2.0), lambda x: x * shift, lambda x: x + torch.tensor(3.0), (x,))

    return torch.cond(x.sum() > 0, positive, lambda x: x * torch.tensor(-2.0), (x,))


def constants_in_loops(n, x):
    def body(i, x):
        return i - 1, scan(lambda state, row: (state * torch.tensor(2.0), state + row), x, x[None])[1][0]

    return while_loop(lambda i, x: i > torch.tensor(0), body, (n, x + torch.tensor([1.0, 5.0])))


def three(value):
    return (torch.full((3,), value),)


def trip_counts(n):
    return torch.tensor(n, dtype=torch.int32), torch.ones(2)  # TOSA's arithmetic on integers has 32 bits


ROWS = torch.linspace(-1, 1, 12).reshape(4, 3)
PROGRAMS: list[tuple[Callable[..., Any], list[tuple[torch.Tensor, ...]]]] = [
    (branches, [three(1.0), three(-0.5), three(-5.0)]),
    (several_results, [three(1.0), three(-1.0)]),
    (number_as_predicate, [three(0.0), three(2.0)]),
    (branches_of_other_strides, [three(1.0), three(-1.0)]),
    (choice, [three(0.5), three(-2.0)]),
    (loop, [trip_counts(3), trip_counts(0), trip_counts(1), trip_counts(7)]),
    (swap, [trip_counts(3), trip_counts(0)]),
    (same_start, [trip_counts(3)]),
    (same_operand, [trip_counts(3)]),
    (branch_in_a_loop, [trip_counts(5), trip_counts(0), trip_counts(2)]),
    (loop_in_a_branch, [trip_counts(4), trip_counts(1), trip_counts(3)]),
    (loop_in_a_loop, [trip_counts(3), trip_counts(0), trip_counts(1)]),
    (closures, [trip_counts(3), trip_counts(0), trip_counts(1)]),
    (scanned, [(ROWS,)]),
    (mapped, [(ROWS, ROWS + 1)]),
    (recurrence, [(ROWS, ROWS + 1)]),
    (constants_in_branches, [three(1.0), three(0.5), three(-1.0)]),
    (constants_in_loops, [trip_counts(2), trip_counts(0)]),
    (true_at_first, [(torch.ones(2),), (torch.full((2,), 15.0),)]),
]


@pytest.fixture(scope="module")
def lowered() -> Callable[[Callable[..., Any], tuple[torch.Tensor, ...], str], Lowered]:
    """Return what lowers a program, each only once."""
    programs: dict[Any, torch.export.ExportedProgram] = {}
    known: dict[tuple[Any, str], Lowered] = {}

    def find(program: Callable[..., Any], inputs: tuple[torch.Tensor, ...], dialect: str) -> Lowered:
        if program not in programs:
            programs[program] = torch.export.export(Model(program), inputs)
        if (program, dialect) not in known:
            known[program, dialect] = lower(programs[program], output_type=dialect)
        return known[program, dialect]

    return find


class Model(torch.nn.Module):
    def __init__(self, program: Callable[..., Any]):
        super().__init__()
        self.program = program

    def forward(self, *inputs):
        return self.program(*inputs)


CASES = [(program, inputs, f"{program.__name__}-{i}") for program, rows in PROGRAMS for i, inputs in enumerate(rows)]


@pytest.mark.slow_rows(
    "-[1-9]-(tosa|stablehlo)",
    "^loop_in_a_branch-0-linalg$",
    "^loop_in_a_loop-0-linalg$",
    "^branches-0-linalg$",
    "^same_start-0-linalg$",
    "^branch_in_a_loop-0-linalg$",
    "^swap-0-linalg$",
    "^loop-0-linalg$",
    "^choice-0-linalg$",
    "^closures-0-linalg$",
    "^several_results-0-linalg$",
    "^scanned-0-linalg$",
    "^true_at_first-0-linalg$",
    "^loop_in_a_branch-0-stablehlo$",
    "^loop_in_a_branch-0-tosa$",
    "^mapped-0-linalg$",
    "^number_as_predicate-0-linalg$",
    "^branch_in_a_loop-0-tosa$",
    "^branches-0-tosa$",
    "^branches-0-stablehlo$",
    "^branch_in_a_loop-0-stablehlo$",
    "^several_results-0-tosa$",
    "^loop_in_a_loop-0-tosa$",
    "^choice-0-tosa$",
    "^several_results-0-stablehlo$",
    "^(same_start|true_at_first|swap|number_as_predicate)-0-tosa",
    "^(branch_in_a_loop|loop_in_a_branch)-1-linalg",
    "^constants_in_branches-0-(linalg|stablehlo)",
    "^branches_of_other_strides-0-linalg",
    "^((swap|choice|true_at_first|closures|scanned|loop)-0-stablehlo|(mapped|recurrence)-0-tosa)$",
    "^(loop_in_a_loop-(0-stablehlo|2-linalg)|branches-1-linalg|closures-(0-tosa|2-linalg)|branch_in_a_loop-2-linalg)$",
)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("program, inputs", [pytest.param(*row, id=name) for *row, name in CASES])
def test_control_flow(program, inputs, dialect, lowered):
    result = lowered(program, inputs, dialect)
    if dialect == "linalg":
        assert_loops_bufferize(result.module)
    results = result.caller()(*inputs)
    torch.testing.assert_close(pytree.tree_leaves(results), pytree.tree_leaves(program(*inputs)))


def test_stablehlo_of_loops_and_branches_through_linalg(lowered):
    compiled = lowered(branch_in_a_loop, trip_counts(5), "stablehlo").caller(backend="jit")
    for n in (0, 5):
        torch.testing.assert_close(compiled(*trip_counts(n)), branch_in_a_loop(*trip_counts(n)))


def test_loop_carried_scalar():
    """For a loop with a Python counter, the first iteration is known to run, and the others are not."""

    def program(x):
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + i), (0, x))

    x = torch.ones(2)
    trip_counts, result = lower(program, x, output_type="linalg").run(x)
    assert trip_counts == 5
    torch.testing.assert_close(result, program(x)[1])


def closed_over(x, start):
    return scan(lambda state, row: (state + row * start, state * 2), start, x)


def repeated(x, start):
    return scan(lambda state, row: ((state[0] + row, state[1] * row), state[0] - state[1]), (start, start), x)


@pytest.mark.parametrize("program", [closed_over, repeated])
def test_scan_that_torch_records_wrong_is_refused(program):
    """The advice is a copy: with it, the program is right."""
    advice = r"confuses .* of a scan .* Start the scan with a copy"
    with pytest.raises(UnsupportedProgramError, match=advice):
        lower(program, ROWS, ROWS[0], output_type="raw")
    with pytest.raises(BackendCompilerFailed, match=advice):
        torch.compile(program, backend=torch_compile.backend)(ROWS, ROWS[0])


def test_scan_that_starts_with_a_copy():
    def program(x, start):
        return scan(lambda state, row: (state + row * start, state * 2), start.clone(), x)

    result = lower(program, ROWS, ROWS[0], output_type="linalg").run(ROWS, ROWS[0])
    torch.testing.assert_close(result, program(ROWS, ROWS[0]))


@pytest.mark.parametrize("table", [None, {}], ids=["decomposed", "as exported"])
def test_modes_are_inlined(table):
    def model(x):
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return y, x @ x

    x = torch.arange(4.0).reshape(2, 2)
    lowered = lower(model, x, output_type="linalg", decomposition_table=table)
    torch.testing.assert_close(lowered.run(x), model(x))


def test_branches_may_return_no_rows_in_tosa():
    def program(x):
        return torch.cond(x.sum() > 0, lambda a: a[:0] * 2, lambda a: a[:0] - 1, (x,))

    assert lower(program, ROWS, output_type="tosa").run(ROWS).shape == program(ROWS).shape

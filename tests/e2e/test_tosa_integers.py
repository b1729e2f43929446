"""Integers in TOSA, on Arm's reference model against eager: 64 bits where required, or 32 bits throughout."""

import importlib.util

import pytest
import torch

from fx_importer import ContractWarning, StageFailed, UsageError, lower

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tosa_reference_model") is None, reason="the extra 'tosa' is not installed"
)

LARGE = 2**40
X = torch.tensor([[1, -5, 2**31 - 1, -(2**31)], [LARGE, -LARGE, 7, 0]])
Y = torch.tensor([[3, 2, 5, -7], [2, -3, 9, 1]])
I32 = torch.tensor([[2**30, 2**30, 7], [2**30, -5, 2**30]], dtype=torch.int32)


def everything(x, y, i):
    """Arithmetic with intermediate results beyond 32 bits."""
    return (
        *(x + y, x - y, x + i[0, 0], x + LARGE, 5 - x, torch.add(x, y, alpha=3), x + (y > 0), x * y),
        *(x // y, x % y, x // 3, x % 3, torch.fmod(x, y), x / y),
        *(i.sum(), i.sum(0), i.cumsum(1), x.sum(1), x.cumsum(1), i[0, :2].prod()),
        *(x.clamp(-3, LARGE - 1), torch.relu(x), x.abs(), -x, x.amax(1), x.argmax(1), torch.maximum(x, y)),
        *(x > LARGE - 1, x == LARGE, x & y, x << 3, x >> 3, x == y, (x > y) == (y > 0)),
        *(x @ y.T, torch.where(x > y, x, y), x.masked_fill(x > 0, LARGE), x[y[0].abs() % 2], x[:, y[0] % 4]),
        *(
            x.gather(1, y.abs() % 4),
            x.scatter(1, y.abs()[:, :1] % 4, y[:, :1] * LARGE),
            x.index_put((y[0, :1] - 4,), y[:1]),
        ),
        *(x.int(), x.float(), x.half(), x.bool(), torch.nn.functional.one_hot(y % 4, 4), (x > 0).sum()),
    )


def test_arithmetic_in_64_bits():
    results = lower(everything, X, Y, I32, output_type="tosa").run(X, Y, I32)
    for number, (result, expected) in enumerate(zip(results, everything(X, Y, I32), strict=True)):
        assert torch.equal(result, expected), f"{number}: {result} is not {expected}"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_positions_of_extrema_that_are_equal_as_floats(dtype):
    ends = torch.iinfo(dtype)
    x = torch.tensor(
        [[2**24, 2**24 + 1, 5], [ends.min, ends.max - 1, ends.max], [3, ends.min, ends.min + 1]], dtype=dtype
    )

    def program(x):
        return torch.argmax(x), torch.argmax(x, 1), torch.argmin(x, 0, True), *torch.max(x, 1), *torch.min(x, 1, True)

    for result, expected in zip(lower(program, x, output_type="tosa").run(x), program(x), strict=True):
        assert torch.equal(result, expected)


def test_positions_in_32_bits():
    x = torch.randn(3, 4)

    def program(x):
        place = torch.argmin(x, 1)
        return place.int(), place.int() + 1, place

    lowered = lower(program, x, output_type="tosa")
    for result, expected in zip(lowered.run(x), program(x), strict=True):
        assert result.dtype is expected.dtype
        assert torch.equal(result, expected)


def test_small_integers_wrap_around_as_in_eager():
    x, y = (torch.tensor([100, -100, sign], dtype=torch.int8) for sign in (7, 3))

    def program(x, y):
        return x + y, x - y, x * y, x + 5, x.short() * 3

    results = lower(program, x, y, output_type="tosa").run(x, y)
    for result, expected in zip(results, program(x, y), strict=True):
        assert torch.equal(result, expected)
        assert result.dtype == expected.dtype


def integers():
    powers = [sign * (2**k + 2 ** max(k - 24, 0) + d) for k in range(62) for d in (-1, 0, 1) for sign in (1, -1)]
    random = torch.randint(-(2**62), 2**62, (500,), generator=torch.Generator().manual_seed(0))
    return torch.cat([torch.tensor([*powers, 2**63 - 1, -(2**63)]), random, random >> 20, random >> 35])


def test_casts_are_rounded_as_eager_rounds():
    x = integers()
    y = torch.cat([x.float() / 8, torch.tensor([0.5, -0.5, -1.5, 2.0**62, -(2.0**63)])])

    def casts(x, y):
        return (*(x.to(dtype) for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.int16)), y.long())

    results = lower(casts, x, y, output_type="tosa").run(x, y)
    for result, expected in zip(results, casts(x, y), strict=True):
        assert torch.equal(result, expected)


def indexed(x, position, mask):
    """Computations that fit into 32 bits for all inputs."""
    chosen = x[position % x.shape[0]]
    count = torch.minimum(mask, torch.tensor(1)).clamp(min=0).cumsum(0) - 1
    return chosen * (position // 5).clamp(-7, 7)[:, None], count, chosen.argmax(1)


def test_narrow_integers_in_and_out():
    x, position, mask = torch.randn(7, 3), torch.tensor([0, -3, 2**31 - 1, -(2**31)]), torch.tensor([1, 0, 9, 1])
    lowered = lower(indexed, x, position, mask, output_type="tosa", narrow_integers=True)
    assert "i64>" not in str(lowered.module).replace("array<i64", "")
    torch.testing.assert_close(lowered.run(x, position, mask), indexed(x, position, mask))
    arguments, results = lowered.manifest.functions["main"].arguments, lowered.manifest.functions["main"].results
    assert [(each.type.dtype, each.passed_as) for each in arguments[:2]] == [("float32", None), ("int64", "int32")]
    assert [(each.type.dtype, each.passed_as) for each in results[:2]] == [("float32", None), ("int64", "int32")]
    eager = lowered.caller(backend="eager")(x, position, mask)
    torch.testing.assert_close(eager, indexed(x, position, mask))
    with pytest.raises(UsageError, match="the input 'position' holds numbers from 0 to 2147483648, but .* takes int32"):
        lowered.run(x, torch.tensor([0, 1, 2, 2**31]), mask)


def test_possible_overflow_is_an_error_or_a_warning():
    x = torch.tensor([1, 2])
    with pytest.raises(StageFailed, match=r"narrow_integers: 'tosa.add' may not fit into 32 bits: .* to 2147483648"):
        lower(lambda x: x + 1, x, output_type="tosa", narrow_integers=True)
    with pytest.warns(ContractWarning, match="'tosa.add' may not fit"):
        lowered = lower(lambda x: x + 1, x, output_type="tosa", narrow_integers=True, contract="warn")
    assert torch.equal(lowered.run(x), x + 1)


def count_down(x):
    """A loop whose counter is bounded by its condition."""

    def more(i, x):
        return i < 5

    def step(i, x):
        return i + 1, x * 2.0

    return torch.while_loop(more, step, (torch.tensor(0), x))


@pytest.mark.parametrize("narrow", [False, True])
def test_counter_bounded_by_the_condition(narrow):
    x = torch.ones(3)
    lowered = lower(count_down, x, output_type="tosa", narrow_integers=narrow)
    torch.testing.assert_close(lowered.run(x), count_down(x))


@torch.no_grad()
def test_state_of_64_bits():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = torch.nn.Buffer(torch.tensor([3]))

        def forward(self, x):
            self.last.copy_(x)
            return x.float()

    x = torch.tensor([5])
    caller = lower(Counter(), x, output_type="tosa", mutation="functional", narrow_integers=True).caller()
    assert torch.equal(caller(x), x.float())
    assert torch.equal(caller.state["last"], x)

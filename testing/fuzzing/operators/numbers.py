"""Python numbers of random programs: inputs, items of tensors, sizes, and their arithmetic."""

from __future__ import annotations

from testing.fuzzing.draw import Draw, NothingFits, Proposal, is_real


def number(draw: Draw) -> Proposal:
    if draw.settings.training:
        raise NothingFits
    x = draw.value(lambda each: is_real(each) and each.numel() == 1, draw.dtype)
    match draw.rng.randrange(4):
        case 0:
            return f"torch.{draw.one(('mul', 'add', 'sub'))}", (draw.value(is_real), draw.new_number()), {}
        case 1:
            of = draw.value(least=1)
            return "torch.Tensor.size", (of, draw.axis(of)), {}
        case 2 if draw.numbers:
            a = draw.one([*draw.numbers])
            b = draw.one([*draw.numbers]) if draw.chance(0.4) else draw.one((2, -1, 0.5, True))
            return f"operator.{draw.one(('add', 'sub', 'mul'))}", (a, b), {}
    return "torch.Tensor.item", (x,), {}

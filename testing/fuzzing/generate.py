"""Generation of random programs: each call is run in eager as it is added, and left out if eager refuses it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from testing.fuzzing.defined import is_defined
from testing.fuzzing.draw import MOST_ELEMENTS, Draw, Family, NothingFits, Settings
from testing.fuzzing.operators import FAMILIES, IN_PLACE, QUANTIZED
from testing.fuzzing.program import OTHER_SIZES, Call, Program, Ref, Size, named

_ATTEMPTS = 12
"""Proposals for each call; then the program is as long as it is."""


def program(seed: int, index: int, settings: Settings) -> Program:
    """Return a random program: always the same for the same arguments."""
    rng = random.Random(f"{seed} {index}")
    for _ in range(50):
        found = _Generation(Draw(rng, settings)).program()
        if found is not None:
            return found
    raise AssertionError("eager refuses everything")


class _Generation:
    """A program that grows."""

    def __init__(self, draw: Draw):
        self.draw = draw
        self.calls: list[Call] = []
        self.made: list[Ref] = []

    def program(self) -> Program | None:
        """Return a program, or None if it came to have no call or no input."""
        draw, settings = self.draw, self.draw.settings
        families = QUANTIZED if settings.quantized else FAMILIES + (IN_PLACE if settings.mutation else ())
        chosen, weights = [family for family, _ in families], [weight for _, weight in families]
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of eager, about results that are NaN
            for _ in range(draw.rng.randint(1, settings.most_calls)):
                family = draw.rng.choices(chosen, weights)[0]
                any(self.extended(family) for _ in range(_ATTEMPTS))
        if not self.made or all(each.buffer for each in draw.inputs):
            return None
        return self.numbered(self.outputs())

    def extended(self, family: Family) -> bool:
        """Add a call of ``family`` and return True, or drop the inputs that were made for it if eager refuses it."""
        draw = self.draw
        inputs, values, numbers = len(draw.inputs), dict(draw.values), dict(draw.numbers)
        try:
            target, args, kwargs = family(draw)
            if (result := self.run(target, args, kwargs)) is None:
                raise NothingFits
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, NothingFits):
            del draw.inputs[inputs:]
            draw.values, draw.numbers = values, numbers
            return False
        found = [*result] if isinstance(result, tuple | list) else [result]
        refs = [Ref(len(self.made) + i) for i in range(len(found))]
        self.calls.append(Call(target, args, kwargs, 0 if found[0] is result else len(found)))
        self.made += refs
        for ref, value in zip(refs, found, strict=True):
            (draw.values if isinstance(value, Tensor) else draw.numbers)[ref] = value
        return True

    def run(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call, a tuple of some, or None for one that is not for a program."""
        values = self.draw.values
        known = {**values, **self.draw.numbers}
        given = _with_values(args, known), {key: _with_values(each, known) for key, each in kwargs.items()}
        if not is_defined(target, *given):
            return None
        kept = [each.clone() for each in values.values()]
        found = named(target)(*given[0], **given[1])
        several = found if isinstance(found, tuple | list) else [found]
        if not all(map(_may_be_value, several)) or not 0 < len(several) <= 8:
            for value, before in zip(values.values(), kept, strict=True):
                value.copy_(before)
            return None
        return found

    def outputs(self) -> list[Ref]:
        """Return the last value and some others; inputs, views and the same one again among them."""
        draw = self.draw
        found = [self.made[-1]]
        found += [ref for ref in self.made[:-1] if draw.chance(0.25)]
        if draw.chance(0.08):
            found.append(draw.one(found))
        if draw.chance(0.08):
            found.append(draw.one([*draw.values]))
        if draw.numbers and draw.chance(0.3):
            found.append(draw.one([*draw.numbers]))
        return found

    def numbered(self, outputs: list[Ref]) -> Program:
        """Return the program with the final numbers of its values; inputs come first."""
        count = len(self.draw.inputs)

        def final(each: Any) -> Any:
            if isinstance(each, Ref):
                return Ref(-1 - each.index if each.index < 0 else count + each.index)
            if isinstance(each, Size):
                return Size(final(each.of), each.axis)
            return type(each)(map(final, each)) if isinstance(each, list | tuple) else each

        calls = [
            replace(call, args=final(call.args), kwargs={key: final(each) for key, each in call.kwargs.items()})
            for call in self.calls
        ]
        draw, settings = self.draw, self.draw.settings
        small = {size: draw.one((0, 1)) for size in draw.some([*OTHER_SIZES])}
        return Program(
            tuple(draw.inputs),
            tuple(calls),
            tuple(map(final, outputs)),
            settings.dynamic,
            settings.training,
            settings.quantized,
            (OTHER_SIZES, small, dict.fromkeys(OTHER_SIZES, draw.one((0, 1)))) if settings.dynamic else (),
            draw.rng.randrange(1, 10**6) if draw.chance(0.25) else 0,
            draw.chance(0.06),
        )


def _may_be_value(found: Any) -> bool:
    if not isinstance(found, Tensor):
        return not isinstance(found, int) or abs(found) < 2**31  # eager has numbers of 64 bits, as kernels have
    return found.numel() <= MOST_ELEMENTS and found.layout is torch.strided


def _with_values(argument: Any, values: Mapping[Ref, Any]) -> Any:
    if isinstance(argument, Ref):
        return values[argument]
    if isinstance(argument, Size):
        return values[argument.of].shape[argument.axis]
    if isinstance(argument, list | tuple):
        return type(argument)(_with_values(each, values) for each in argument)
    return argument

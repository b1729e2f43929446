"""Generation of random programs: each call is run in eager as it is added, and left out if eager refuses it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.fuzzing.defined import is_defined
from benchmarks.fuzzing.draw import MOST_ELEMENTS, Draw, Family, NothingFits, Settings
from benchmarks.fuzzing.operators import FAMILIES, IN_PLACE
from benchmarks.fuzzing.program import Call, Program, Ref, Size, run_call

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
        families = FAMILIES + (IN_PLACE if settings.mutation else ())
        chosen, weights = [family for family, _ in families], [weight for _, weight in families]
        with torch.no_grad():
            for _ in range(draw.rng.randint(1, settings.most_calls)):
                family = draw.rng.choices(chosen, weights)[0]
                any(self.extended(family) for _ in range(_ATTEMPTS))
        if not self.made or all(each.buffer for each in draw.inputs):
            return None
        return self.numbered(self.outputs())

    def extended(self, family: Family) -> bool:
        """Add a call of ``family`` and return True, or drop the inputs that were made for it if eager refuses it."""
        draw = self.draw
        inputs, values = len(draw.inputs), dict(draw.values)
        try:
            target, args, kwargs = family(draw)
            if (found := self.run(target, args, kwargs)) is None:
                raise NothingFits
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, NothingFits):
            del draw.inputs[inputs:]
            draw.values = values
            return False
        refs = [Ref(len(self.made) + i) for i in range(len(found))]
        self.calls.append(Call(target, args, kwargs, len(found)))
        self.made += refs
        draw.values.update(zip(refs, found, strict=True))
        return True

    def run(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor] | None:
        """Return the results of a call, or None for one that is not for a program."""
        values = self.draw.values
        given = _with_values(args, values), {key: _with_values(each, values) for key, each in kwargs.items()}
        if not is_defined(target, *given):
            return None
        call = Call(target, *given, results=1)
        kept = [each.clone() for each in values.values()]
        found = run_call(call, ())
        if any(each.numel() > MOST_ELEMENTS or each.layout is not torch.strided for each in found) or len(found) > 8:
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
        settings = self.draw.settings
        inputs = tuple(self.draw.inputs)
        return Program(inputs, tuple(calls), tuple(map(final, outputs)), settings.dynamic, settings.training)


def _with_values(argument: Any, values: dict[Ref, Tensor]) -> Any:
    if isinstance(argument, Ref):
        return values[argument]
    if isinstance(argument, Size):
        return values[argument.of].shape[argument.axis]
    if isinstance(argument, list | tuple):
        return type(argument)(_with_values(each, values) for each in argument)
    return argument

"""Modules whose code may observe which of several equal modules it is, or state that no attribute holds, are traced."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.frontend.repeated_modules.test_traced_once import Block, Reading, Stack, check, exported

PLACES: dict[Any, float] = {}
NUMBERS: dict[int, float] = {}
FIRST: list[nn.Module] = []
COUNT = np.zeros(1)
PUSHED: list[int] = []
PUSH, PUSHES = PUSHED.append, PUSHED.__len__


def place(module: nn.Module) -> float:
    return PLACES[module]


def place_of_id(module: nn.Module) -> float:
    return NUMBERS[id(module)]


def place_of_hash(module: nn.Module) -> float:
    return NUMBERS[module.__hash__()]


def place_of_part(module: Any) -> float:
    return PLACES[module.one]


def is_first(module: nn.Module) -> float:
    return 2.0 if module is FIRST[0] else 3.0


def place_in_owner(module: Any) -> float:
    return [*module.owner().blocks].index(module) + 2.0


def counted(module: nn.Module) -> float:
    COUNT[0] += 1
    return float(COUNT[0])


def pushed(module: nn.Module) -> int:
    PUSH(1)
    return PUSHES()


@functools.lru_cache
def place_of_first_call(module: nn.Module) -> int:
    PUSH(1)
    return PUSHES()


def numbered(module: nn.Module) -> int:
    return place_of_first_call(module)


class Own(Block):
    """A block that multiplies its results by what a function returns for it."""

    factor: Any = None

    def extra(self, x: Tensor) -> Tensor:
        return x * self.factor()


def stack(factor: Callable[[Any], float]) -> nn.Module:
    kind = type("Own", (Own,), {"factor": factor, "__module__": __name__})
    model = Stack(*(kind() for _ in range(3)))
    owner = weakref.ref(model)
    for block in model.blocks:
        vars(block).update({"owner": owner} if factor is place_in_owner else {})
    PLACES.clear()
    place_of_first_call.cache_clear()
    for number, block in enumerate(model.blocks):
        PLACES.update(dict.fromkeys((block, block.one), number + 2.0))
        NUMBERS.update(dict.fromkeys((id(block), hash(block)), number + 2.0))
    FIRST[:] = model.blocks[:1]
    COUNT[0] = 0
    PUSHED.clear()
    for block in model.blocks:
        numbered(block)
    return model


class Returning(Reading):
    """A block that returns its number too."""

    def forward(self, x: Tensor) -> Any:
        return super(Reading, self).forward(x), self.value


class Returned(Stack):
    def forward(self, x: Tensor) -> Tensor:
        x = x.sin()
        for block in self.blocks:
            x, number = block(x)
            x = x * number
        return x


class Typed(Reading):
    def extra(self, x: Tensor) -> Tensor:
        return x * (2.0 if type(self.value) is int else 3.0)


class Marked(Stack):
    """Tensors with an attribute of the model's code."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.sin()
        for number, block in enumerate(self.blocks):
            setattr(x, "factor", number + 2.0)  # noqa: B010 - tensors have no attribute of this name
            x = block(x)
        return x


class ReadingMark(Block):
    def extra(self, x: Tensor) -> Tensor:
        return x * getattr(x, "factor", 1.0)


def in_two_places() -> nn.Module:
    model = Stack(*(Block() for _ in range(3)))
    model.blocks[0].two = model.blocks[0].one
    return model


class Settings(dict[str, float]):
    """A dictionary with an attribute."""

    factor = 1.0


def with_settings() -> nn.Module:
    blocks = [Reading(Settings()) for _ in range(3)]
    for number, block in enumerate(blocks):
        block.value.factor = number + 2.0
    kind = type("Set", (Reading,), {"extra": lambda self, x: x * self.value.factor, "__module__": __name__})
    for block in blocks:
        block.__class__ = kind
    return Stack(*blocks)


class Branches(Stack):
    """Blocks that TorchDynamo traces."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cond(x.sum() > 0, lambda x: self.blocks[0](x), lambda x: self.blocks[1](x), (x,))
        return self.blocks[2](x)


TRACED = {
    "key": (lambda: stack(place), "refers to modules by PLACES"),
    "id": (lambda: stack(place_of_id), "mentions id"),
    "hash": (lambda: stack(place_of_hash), "mentions __hash__"),
    "part": (lambda: stack(place_of_part), "refers to modules by PLACES"),
    "first": (lambda: stack(is_first), "refers to modules by FIRST"),
    "owner": (lambda: stack(place_in_owner), "modules that are equal to it"),
    "array": (lambda: stack(counted), "COUNT, of the class ndarray, which may change"),
    "builtin": (lambda: stack(pushed), "it changes PUSH"),
    "cache": (lambda: stack(numbered), "which keeps results"),
    "returned": (lambda: Returned(*map(Returning, range(3))), "its code reads value, which differs"),
    "typed": (lambda: Stack(*map(Typed, range(3))), "may read the class of value"),
    "marked": (lambda: Marked(*(ReadingMark() for _ in range(3))), "a tensor has attributes of the model's code"),
    "places": (in_two_places, "blocks.0.two is in several places"),
    "subclass": (with_settings, "blocks.1 differs from blocks.0 in value"),
}


@pytest.mark.parametrize("name", [*TRACED])
def test_what_tells_modules_apart_is_traced(name):
    make, reason = TRACED[name]
    assert reason in check(make)[-1]


def test_modules_in_branches_are_traced():
    said: list[str] = []
    program = exported(Branches(*(Block() for _ in range(3))), True, said=said)
    assert "cond" in str(program.graph)
    assert "with one traced call for several, torch.export raised" in said[-1]


def test_forward_of_a_module_stays():
    """A module keeps the method forward that its user gave it."""
    blocks = Block(), Block(), Block()
    forward = blocks[1].one.forward
    for block in blocks:
        vars(block)["forward"] = forward
    assert "it has a method forward of its own" in check(lambda: Stack(*blocks))[-1]
    assert all(vars(block)["forward"] is forward for block in blocks)

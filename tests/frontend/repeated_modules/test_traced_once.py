"""Equal modules are traced once: the program is that of torch.export. What may differ is traced."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from fx_importer import lower
from fx_importer.frontend.export import export_program
from fx_importer.frontend.repeated_modules import traced_once
from fx_importer.frontend.repeated_modules.python_state import PythonState
from fx_importer.options import ExportOptions

CALLS: list[int] = []
COUNT = 0
SETTINGS = {"scale": 1.0}
NUMBERS = itertools.count()


class Block(nn.Module):
    """A block of three modules, which subclasses change."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = nn.Linear(4, 4)
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.relu(self.one(x))) + self.extra(x) + self.shift

    def extra(self, x: Tensor) -> Tensor:
        return x


class Reading(Block):
    """A block that reads an attribute of its own."""

    def __init__(self, value: Any):
        super().__init__()
        self.value = value

    def extra(self, x: Tensor) -> Tensor:
        return x * self.value


class Idle(Block):
    """A block with a number that it does not read."""

    def __init__(self, number: int):
        super().__init__()
        self.layer_idx = number


class CountingGlobal(Block):
    def extra(self, x: Tensor) -> Tensor:
        global COUNT
        COUNT += 1
        return x * COUNT


class CountingList(Block):
    def extra(self, x: Tensor) -> Tensor:
        CALLS.append(1)
        return x * len(CALLS)


class CountingClass(Block):
    count = 0

    def extra(self, x: Tensor) -> Tensor:
        type(self).count += 1
        return x * self.count


def counting() -> Any:
    count = 0

    def scaled(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return x * count

    return scaled


class CountingClosure(Reading):
    def extra(self, x: Tensor) -> Tensor:
        return self.value(x)


class Iterating(Block):
    def extra(self, x: Tensor) -> Tensor:
        return x * next(NUMBERS)


class Choosing(Block):
    def extra(self, x: Tensor) -> Tensor:
        return x * random.choice([1.0, 2.0])


class Drawing(Block):
    def extra(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Setting(Block):
    def extra(self, x: Tensor) -> Tensor:
        return x * SETTINGS["scale"]


class Called(Block):
    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x) * 2


class Constant(Block):
    def extra(self, x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 2.0, 3.0, 4.0])


class Keeping(Block):
    def extra(self, x: Tensor) -> Tensor:
        self.get_buffer("shift").add_(1.0)
        return x


class Norm(Block):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def extra(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Writing(Block):
    """A block that writes to its argument, and returns it."""

    def extra(self, x: Tensor) -> Tensor:
        return x.add_(1.0)


class Stack(nn.Module):
    def __init__(self, *blocks: nn.Module):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = x.sin()
        for block in self.blocks:
            x = block(x)
        return x


class Lines(Stack):
    """Blocks that are called in several lines, one of them twice."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks[0](x.sin())
        y = self.blocks[1](x)
        y = self.blocks[2](y)
        y += x
        return self.blocks[1](y)


class Changing(Stack):
    """A model that changes what its blocks read, between their calls."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.sin()
        for number, block in enumerate(self.blocks):
            SETTINGS["scale"] = number + 1.0
            x = block(x)
        return x


class Marking(Stack):
    def forward(self, x: Tensor) -> Tensor:
        x = x.sin()
        for number, block in enumerate(self.blocks):
            vars(block)["value"] = number + 1.0
            x = block(x)
        return x


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = nn.Linear(4, 4)

    def forward(self, x: Tensor, *, others: list[Tensor], scale: float = 1.0) -> dict[str, Any]:
        return {"sum": self.one(x) + self.two(others[0]) * scale, "same": others[0], "none": None}


class Pairs(Stack):
    """Calls with other structures of arguments: twice the same tensor, two tensors, another number."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.cos()
        x = x.sin()
        for block, (one, two, scale) in zip(
            self.blocks, ((x, x, 1.0), (x, y, 1.0), (y, x, 1.0), (x, y, 2.0)), strict=True
        ):
            results = block(one, others=[two], scale=scale)
            x = results["sum"] * results["same"]
        return x


def doubled(module: nn.Module, args: Any, result: Any) -> Any:
    return result * 2


def hooked() -> nn.Module:
    blocks = Block(), Block(), Block()
    blocks[1].one.register_forward_hook(doubled)
    return Stack(*blocks)


def shared() -> nn.Module:
    blocks = Block(), Block(), Block()
    blocks[1].one.weight = blocks[2].two.weight
    return Stack(*blocks)


def repeated(kind: type[Block], model: type[Stack] = Stack, *args: Any, number: int = 3) -> nn.Module:
    return model(*(kind(*args) for _ in range(number)))


X = torch.randn(3, 4)
BATCH = ({0: Dim("batch")},)


def exported(model: nn.Module, once: bool, shapes: Any = None, said: list[str] | None = None) -> ExportedProgram:
    global COUNT, NUMBERS
    COUNT, NUMBERS, CountingClass.count = 0, itertools.count(), 0
    CALLS.clear()
    SETTINGS["scale"] = 1.0
    random.seed(0)
    options = ExportOptions(shapes, reuse_traces=once)
    return export_program(model, (X,), {}, options, remark=[].append if said is None else said.append)


def listing(program: ExportedProgram) -> list[Any]:
    """Return what locations, types and operands of the module come from; sizes that nothing uses also take names."""
    numbers = {node: number for number, node in enumerate(program.graph.nodes)}

    def described(node: fx.Node) -> tuple[Any, ...]:
        arguments = str(fx.map_arg((node.args, node.kwargs), lambda each: f"%{numbers[each]}"))
        value = node.meta.get("val")
        kind = (str(value.shape), value.dtype, str(value.stride())) if isinstance(value, Tensor) else str(value)
        name = node.name if node.op == "placeholder" else str(node.target)
        return name, arguments, kind, node.stack_trace, node.meta.get("nn_module_stack")

    return [described(node) for node in program.graph.nodes]


def check(make: Callable[[], nn.Module], shapes: Any = None) -> list[str]:
    said: list[str] = []
    ours, theirs = exported(make(), True, shapes, said), exported(make(), False, shapes)
    assert listing(ours) == listing(theirs)
    assert str(ours.range_constraints) == str(theirs.range_constraints)
    return said


COPIED = {
    "plain": (lambda: repeated(Block), "2 calls of Block are copies of 1 traced ones"),
    "number": (lambda: Stack(Idle(0), Idle(1), Idle(2)), "2 calls of Idle are copies of 1 traced ones"),
    "lines": (lambda: repeated(Block, Lines), "3 calls of Block are copies of 1 traced ones"),
    "written": (lambda: repeated(Writing), "2 calls of Writing are copies of 1 traced ones"),
    "pairs": (lambda: Pairs(*(Pair() for _ in range(4))), "1 calls of Pair are copies of 3 traced ones"),
}


@pytest.mark.parametrize("shapes", [None, BATCH], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", [*COPIED])
def test_program_is_that_of_export(name, shapes):
    make, remark = COPIED[name]
    assert check(make, shapes) == [remark]


TRACED = {
    "own_number": (lambda: Stack(Reading(1), Reading(2), Reading(3)), "its code reads value, which differs"),
    "own_float": (lambda: Stack(Reading(0.1), Reading(0.2)), "blocks.1 differs from blocks.0 in value"),
    "own_object": (lambda: Stack(Reading(torch.ones(4)), Reading(torch.ones(4))), "differs from blocks.0 in value"),
    "global": (lambda: repeated(CountingGlobal), "changes"),
    "list": (lambda: repeated(CountingList), "changes CALLS"),
    "class": (lambda: repeated(CountingClass), "changes CountingClass"),
    "closure": (lambda: repeated(CountingClosure, Stack, counting()), "changes counting"),
    "iterator": (lambda: repeated(Iterating), "NUMBERS, which is something else each time"),
    "random": (lambda: repeated(Choosing), "its code calls the module random"),
    "random_tensor": (lambda: repeated(Drawing), "it draws random numbers"),
    "hook": (hooked, "it has hooks"),
    "shared": (shared, "it shares a weight with another module"),
    "call": (lambda: repeated(Called), "replaces __call__"),
    "constant": (lambda: repeated(Constant), "it has constant tensors"),
    "state": (lambda: repeated(Keeping), "changes"),
    "training": (lambda: repeated(Norm).train(), "changes"),
    "setting": (lambda: repeated(Setting, Changing), "SETTINGS changes between them"),
}


@pytest.mark.filterwarnings("ignore:.*training mode")
@pytest.mark.parametrize("name", [*TRACED])
def test_what_may_differ_is_traced(name):
    make, reason = TRACED[name]
    assert reason in check(make)[-1]


def test_attribute_that_the_model_sets_between_calls():
    assert check(lambda: repeated(Reading, Marking, 1.0)) == []


def test_numbers_and_trace():
    model = repeated(Block).eval()
    lowered = lower(model, X, output_type="torch")
    assert lowered.trace.stages[0].remarks == ["2 calls of Block are copies of 1 traced ones"]
    whole = lower(model, X, output_type="torch", reuse_traces=False)
    assert str(whole.module) == str(lowered.module)
    assert lowered.verify(X)


class Numbered(Block):
    """Adds the number of the call, so that no two calls are equal."""

    def forward(self, x: Tensor, number: int = 0) -> Tensor:
        return super().forward(x) + number


class InOrder(Stack):
    """Calls its blocks with their positions."""

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = block(x, number)
        return x


def test_calls_that_all_differ_are_compared_six_times(monkeypatch):
    states = []
    monkeypatch.setattr(traced_once, "PythonState", lambda *of: states.append(of) or PythonState(*of))
    said = check(lambda: InOrder(*(Numbered() for _ in range(9))))
    assert said == ["calls of Numbered were traced one by one: no two of the calls were equal"]
    assert len(states) == 6


def test_capture_that_fails_before_a_copy_is_not_tried_twice():
    tries: list[int] = []

    def export() -> ExportedProgram:
        tries.append(0)
        raise ValueError("of the model") from KeyError("never raised, so that it has no traceback")

    with pytest.raises(ValueError, match="of the model"):
        traced_once.exported_once(repeated(Block), export)
    assert len(tries) == 1

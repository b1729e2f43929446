"""Eight threads lower models, and eight threads call one result: modules and numbers are those of one thread.

    python benchmarks/threads.py                       # 100 repetitions
    python benchmarks/threads.py --repetitions 10

A repetition starts eight threads at once. Each lowers one model to one output type; in every fourth repetition, all
lower the same exported program. Then eight threads call each result with inputs of their own; in the first
repetition with a new result, its first call too is made by all of them. Patches must be undone after each repetition.
"""

from __future__ import annotations

import argparse
import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout need not be installed to be measured

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from fx_importer import Lowered, lower, quantize
from fx_importer.frontend.torch_patches import PATCHES

THREADS = 8
OUTPUT_TYPES = ("raw", "torch", "linalg-on-tensors", "tosa", "stablehlo")
_TENSORS = ("linalg-on-tensors", "stablehlo")


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).softmax(-1) + x.var(-1, keepdim=True)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).mean((2, 3))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


class Sum(nn.Module):
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


@dataclass(frozen=True)
class Case:
    """A model to lower, with the output types that it has."""

    name: str
    model: nn.Module | ExportedProgram
    inputs: Sequence[torch.Tensor]
    output_types: Sequence[str] = OUTPUT_TYPES
    options: dict[str, Any] = field(default_factory=dict)

    def lower(self, output_type: str) -> Lowered:
        """Lower the model."""
        example = () if isinstance(self.model, ExportedProgram) else self.inputs
        return lower(self.model, *example, output_type=output_type, **self.options)


def float_cases() -> list[Case]:
    """Return modules and exported programs, with static and dynamic sizes."""
    torch.manual_seed(0)
    x, images = torch.randn(2, 6), torch.randn(1, 3, 8, 8)
    sequences, batch = torch.randn(2, 5, 8), {"x": {0: Dim("batch", min=2, max=64)}}
    return [
        Case("module", Perceptron().eval(), (x,)),
        Case("program", export(Perceptron().eval(), (x,)), (x,)),
        Case("convolution", export(Pictures().eval(), (images,)), (images,)),
        Case("recurrent", nn.LSTM(6, 3).eval(), (torch.randn(4, 2, 6),)),
        Case("dynamic", Attention().eval(), (sequences,), ("raw", "torch", *_TENSORS), {"dynamic_shapes": batch}),
        Case(
            "dynamic program",
            export(Attention().eval(), (sequences,), dynamic_shapes=batch),
            (sequences,),
            ("raw", "torch", *_TENSORS),
        ),
        Case("branches", Branches(), (x,)),
        Case("state", Sum(), (torch.ones(3),), options={"mutation": "functional"}),
    ]


def quantized_cases() -> list[Case]:
    """Return exported programs that are quantized, to lower with quantize and dequantize operators and in integers."""
    torch.manual_seed(0)
    x = torch.randn(2, 6)
    program = export(quantize(Perceptron().eval(), [(torch.randn(2, 6),) for _ in range(4)]), (x,))
    return [
        Case("quantized", program, (x,), ("torch", "linalg-on-tensors", "tosa", "stablehlo")),
        Case("integer", program, (x,), ("linalg-on-tensors", "tosa"), {"quantized": "integer"}),
    ]


def at_once(work: Sequence[Callable[[], object]]) -> list[str]:
    """Run ``work`` in a thread for each, which begin together. Return their errors."""
    errors: list[str] = []
    start = threading.Barrier(len(work))

    def run(function: Callable[[], object]) -> None:
        try:
            start.wait(60)
            function()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {str(error)[:300]}")

    threads = [threading.Thread(target=run, args=(function,)) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def settings() -> list[Any]:
    """Return what lowering changes in the process for a while."""
    patched = [patch.resolved() for patch in PATCHES if patch.exists()]
    return [*(patch.read() for patch in patched), gc.isenabled(), torch._C._get_mkldnn_enabled(), [*warnings.filters]]


def text_of(lowered: Lowered) -> str:
    """Return the IR, with all weights."""
    return lowered.module.operation.get_asm()


class Lowering:
    """Lowers cases in eight threads, and compares the IR with that of one."""

    def __init__(self, chosen: Sequence[Case]):
        self._work = [(case, output_type) for case in chosen for output_type in case.output_types]
        self._programs = [pair for pair in self._work if isinstance(pair[0].model, ExportedProgram)]
        self._alone = {(case.name, output_type): text_of(case.lower(output_type)) for case, output_type in self._work}

    def __call__(self, repetition: int) -> list[str]:
        """Lower in eight threads, and return what went wrong."""
        if repetition % 4 == 3:
            pairs = [self._programs[repetition % len(self._programs)]] * THREADS
        else:
            pairs = [self._work[(repetition * THREADS + number) % len(self._work)] for number in range(THREADS)]
        return at_once([lambda pair=pair: self._check(*pair) for pair in pairs])

    def _check(self, case: Case, output_type: str) -> None:
        if text_of(case.lower(output_type)) != self._alone[case.name, output_type]:
            raise AssertionError(f"{case.name}, {output_type}: another module than one thread's")


class Calling:
    """Calls one result in eight threads, and compares the numbers with those of one."""

    def __init__(self, chosen: Sequence[Case]):
        stateless = [case for case in chosen if case.name != "state"]
        self._lowered = [(case, lower_to, case.lower(lower_to)) for case in stateless for lower_to in _RUN[case.name]]
        self._inputs = [
            [[_like(tensor, case, number) for tensor in case.inputs] for number in range(THREADS)]
            for case, _, _ in self._lowered
        ]
        self._alone = [
            [*map(case.lower(output_type).run, *zip(*given, strict=True))]
            for (case, output_type, _), given in zip(self._lowered, self._inputs, strict=True)
        ]

    def __call__(self, repetition: int) -> list[str]:
        """Call a result in eight threads, and return what went wrong."""
        at = repetition % len(self._lowered)
        case, output_type, lowered = self._lowered[at]

        def call(number: int) -> None:
            for _ in range(5):
                returned = lowered(*self._inputs[at][number])
                torch.testing.assert_close(
                    returned, self._alone[at][number], rtol=0, atol=0, msg=f"{case.name}, {output_type}"
                )

        return at_once([lambda number=number: call(number) for number in range(THREADS)])


_RUN = {
    **dict.fromkeys(("module", "program", "convolution", "recurrent", "branches"), ("linalg-on-tensors",)),
    **dict.fromkeys(("dynamic", "dynamic program"), ("linalg-on-tensors",)),
    **dict.fromkeys(("quantized", "integer"), ("linalg-on-tensors",)),
    "module": ("linalg-on-tensors", "stablehlo"),
}
"""The output types of results that are called: of linalg on the JIT, of StableHLO in its interpreter."""


def _like(tensor: torch.Tensor, case: Case, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    dynamic = case.name.startswith("dynamic")
    shape = (2 + number % 4, *tensor.shape[1:]) if dynamic else tensor.shape
    return torch.randn(shape, generator=generator)


class Counting:
    """Eight threads call one result with state: no call is lost."""

    def __init__(self, chosen: Sequence[Case]):
        (self._case,) = [case for case in chosen if case.name == "state"]
        self._lowered = self._case.lower("linalg-on-tensors")

    def __call__(self, repetition: int) -> list[str]:
        """Call in eight threads, and return what went wrong."""
        caller = self._lowered.caller()

        def call() -> None:
            for _ in range(20):
                caller(torch.ones(3))

        errors = at_once([call] * THREADS)
        total = caller.state["total"]
        return errors if errors or bool((total == 20 * THREADS).all()) else [f"the state is {total.tolist()}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the repetitions, print what went wrong, and return the number of failed ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=100)
    repetitions = parser.parse_args(arguments).repetitions
    sys.setswitchinterval(1e-4)  # which makes races more probable
    chosen = [*float_cases(), *quantized_cases()]
    began = time.perf_counter()
    work = {"lower": Lowering(chosen), "call": Calling(chosen), "state": Counting(chosen)}
    before, failed = settings(), 0
    print(f"one thread: {time.perf_counter() - began:.1f} s")
    for name, run in work.items():
        began, wrong = time.perf_counter(), 0
        for repetition in range(repetitions):
            errors = run(repetition)
            if settings() != before:
                errors.append("a patch or a setting was not undone")
            wrong += bool(errors)
            for error in errors:
                print(f"{name}, repetition {repetition}: {error}")
        seconds = time.perf_counter() - began
        print(
            f"{name}: {repetitions - wrong} of {repetitions} repetitions with {THREADS} threads agree, {seconds:.1f} s"
        )
        failed += wrong
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))

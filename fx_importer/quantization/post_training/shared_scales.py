"""Values of different ranges in one tensor, which has one scale: the signal to noise that they lose."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from fx_importer.quantization.families.movement import LISTS
from fx_importer.quantization.qdq import described, kind_of
from fx_importer.quantization.rule import is_activation

LARGEST_LOSS = 15.0
"""Loss of signal to noise, in dB, that is material where less than `ENOUGH` is left."""
ENOUGH = 30.0
"""A signal to noise, in dB, that needs no warning."""
_PREFIX = "operand_range"


class RangeObserver(torch.nn.Module):
    """Records the range and the mean square of the values that it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high, self.power, self.count = 0.0, 0.0, 0.0, 0

    def forward(self, x: Tensor) -> None:
        if x.numel():
            self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
            self.power += float(x.double().square().sum())
            self.count += x.numel()

    def ratio(self, step: float) -> float:
        """Return the signal to noise in dB of the values, rounded to multiples of ``step``."""
        signal = self.power / max(self.count, 1)
        noise = min(step**2 / 12, signal)  # all are zero
        return math.inf if noise == 0 else 10 * math.log10(signal / noise)


@dataclass
class OperandRanges:
    """Observers of the operands of concatenations of a graph that is calibrated."""

    module: fx.GraphModule
    observers: Mapping[str, list[tuple[str, RangeObserver]]] = field(default_factory=dict)
    """By concatenation, the names of its operands with their observers."""

    @classmethod
    def observing(cls, module: fx.GraphModule) -> OperandRanges:
        """Observe the operands of concatenations in ``module``, in place."""
        observers: dict[str, list[tuple[str, RangeObserver]]] = {}
        for node in list(module.graph.nodes):
            if node.op != "call_function" or node.target not in LISTS or not is_activation(node):
                continue
            operands: Any = node.args[0]
            for operand in operands:
                observer = RangeObserver()
                name = f"{_PREFIX}_{sum(map(len, observers.values()))}"
                module.add_module(name, observer)
                with module.graph.inserting_before(node):
                    module.graph.call_module(name, (operand,))
                source = operand.args[0] if operand.op == "call_module" else operand
                observers.setdefault(node.name, []).append((source.name, observer))
        if observers:
            module.recompile()
        return cls(module, observers)

    def stop(self) -> None:
        """Remove the observers from the module."""
        for node in self.module.graph.find_nodes(op="call_module", sort=False):
            if str(node.target).startswith(_PREFIX):
                self.module.graph.erase_node(node)
                delattr(self.module, str(node.target))
        self.module.recompile()

    def losses(self, quantized: fx.GraphModule) -> Iterator[str]:
        """Yield a sentence for each concatenation in ``quantized`` that loses much of an operand."""
        for node in quantized.graph.nodes:
            stored = next((user for user in node.users if kind_of(user) == "quantize"), None)
            if stored is None or node.name not in self.observers:
                continue
            step, levels = stored.args[1], stored.args[4] - stored.args[3]
            wide = stored.args[5] is torch.int16
            lost: list[str] = []
            for name, observer in self.observers[node.name]:
                width = 2 * max(-observer.low, observer.high) if wide else observer.high - observer.low
                own, left = observer.ratio(width / levels), observer.ratio(step)
                if own - left >= LARGEST_LOSS and left < ENOUGH:
                    lost.append(f"'{name}' ({observer.low:.3g} to {observer.high:.3g}): {own:.0f} dB become {left:.0f}")
            if lost:
                yield (
                    f"{described(node)}: one scale, {step:.3g}, for operands of different ranges. Signal to "
                    f"noise of {'; '.join(lost)}. Return the operands as results of their own, or scale them to one "
                    f"range"
                )

"""Values beyond the range that a quantize operator was calibrated for, where it saturates."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import QuantizationWarning
from fx_importer.manifest import Function

LEAST_RATIO = 20.0
"""Least signal to noise of a quantized value, in dB: below it, an error is more than rounding."""
_SHOWN = 3
"""Values that a warning names."""


@dataclass
class Saturations:
    """Values that saturate in quantize operators, and keep less than `LEAST_RATIO`; also an observer of `Reference`."""

    names: Mapping[fx.Node, str] = field(default_factory=dict[fx.Node, str])
    """What users call inputs, state and weights."""
    worst: dict[str, tuple[float, str]] = field(default_factory=dict[str, tuple[float, str]])
    """The least ratio of each value, and its sentence."""

    @classmethod
    def of(cls, programs: Mapping[str, ExportedProgram]) -> Saturations | None:
        """Return an observer of ``programs``; None if they quantize nothing."""
        if not any(_quantizes(node) for program in programs.values() for node in program.graph.nodes):
            return None
        placeholders = [placeholder for program in programs.values() for placeholder in _placeholders(program)]
        return cls({node: f"{kind} '{node.name if kind == 'input' else key}'" for node, kind, key in placeholders})

    def __call__(self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> None:
        """Note the operand of ``node``, if it is a quantize operator."""
        if _quantizes(node) and isinstance(source := node.args[0], fx.Node):
            self.note(self.names.get(source) or _computed(source), args)

    def note(self, name: str, args: Sequence[Any]) -> None:
        """Note the value called ``name``; ``args`` are the arguments of its quantize operator."""
        value, scale, zero_point, first, last = args[0], *map(float, args[1:5])
        low, high = (first - zero_point) * scale, (last - zero_point) * scale
        if not value.numel() or (value.amin() >= low - scale and value.amax() <= high + scale):
            return
        finite = value[value.isfinite()]
        least, most = (float(bound) for bound in finite.aminmax()) if finite.numel() else (low, high)
        if least >= low - scale and most <= high + scale:
            return
        noise = float((finite - finite.clamp(low, high)).double().square().sum())
        ratio = 10 * math.log10(float(finite.double().square().sum()) / noise)
        if ratio < min(LEAST_RATIO, self.worst.get(name, (math.inf,))[0]):
            reached = most if most - high > low - least else least
            self.worst[name] = ratio, f"{name} reaches {reached:.3g}, beyond its range {low:.3g} to {high:.3g}"

    def warn(self, stacklevel: int) -> None:
        """Warn of the values, at a caller as in `warnings.warn`."""
        sentences = [sentence for _, sentence in self.worst.values()]
        if sentences:
            more = f"; and {len(sentences) - _SHOWN} more" if len(sentences) > _SHOWN else ""
            warnings.warn(
                f"quantized values saturate: {'; '.join(sentences[:_SHOWN])}{more}. Scales come from the calibration: "
                "pass inputs like these to it",
                QuantizationWarning,
                stacklevel=stacklevel + 1,
            )


def arguments_check(program: ExportedProgram, function: Function) -> Callable[[Sequence[Any]], None] | None:
    """Return a check of the arguments of ``function``, which warns once of those that saturate.

    It is None if no quantize operator takes an argument as it is: others have no range.
    """
    nodes = {(kind, key): node for node, kind, key in _placeholders(program)}
    quantized = [
        (position, f"{argument.kind} '{argument.name}'", next(filter(_quantizes, node.users)))
        for position, argument in enumerate(function.arguments)
        for kind, key in [("input", argument.leaf) if argument.kind == "input" else ("state", argument.name)]
        if (node := nodes.get((kind, key))) is not None and any(map(_quantizes, node.users))
    ]
    warned: set[int] = set()

    def check(arguments: Sequence[Any]) -> None:
        saturations = Saturations()
        for position, name, node in quantized:
            value = arguments[position]
            if position not in warned and isinstance(value, Tensor):
                saturations.note(name, [value, *node.args[1:]])
                if name in saturations.worst:
                    warned.add(position)
        saturations.warn(stacklevel=7)  # the checked function, the plan (2), the caller and `Lowered.run`

    return check if quantized else None


def _quantizes(node: fx.Node) -> bool:
    """Return whether ``node`` quantizes with one scale that is a number."""
    called = str(node.target).startswith("quantized_decomposed.quantize_per_tensor.") and len(node.args) > 4
    return called and not any(isinstance(argument, fx.Node) for argument in node.args[1:])


def _placeholders(program: ExportedProgram) -> Iterator[tuple[fx.Node, str, str | int | None]]:
    """Yield the placeholders of ``program``, with ``"input"`` and the leaf or ``"state"`` and its name."""
    leaves = itertools.count()
    nodes = program.graph.find_nodes(op="placeholder")
    for spec, node in zip(program.graph_signature.input_specs, nodes, strict=True):
        is_input = spec.kind is InputKind.USER_INPUT
        yield node, "input" if is_input else "state", next(leaves) if is_input else spec.target


def _computed(node: fx.Node) -> str:
    where = unsupported_node(node, "").where
    return f"'{node.name}'" + (f" (at {where})" if where else "")

"""`accuracy`: a quantized model compared with its float model, by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from fx_importer.api.quantize import check_torchao, exported, quantize
from fx_importer.errors import UsageError
from fx_importer.frontend.export import export_program
from fx_importer.options import ExportOptions
from fx_importer.quantization.layer_errors import (
    LayerErrors,
    Powers,
    flat,
    measure,
    steps_from_qdq,
    unchanged,
    values_of,
)
from fx_importer.quantization.post_training.calibration import Call, calls_of
from fx_importer.quantization.post_training.pt2e import float_reference
from fx_importer.quantization.qdq import kind_of

_SHOWN = 5
_OTHER = "the values of the quantized model are not those of the float model: is it the model that was quantized?"


@dataclass(frozen=True)
class LayerAccuracy:
    """The accuracy of one quantized value. Ratios are signal to noise relative to the float model, in dB."""

    name: str
    """Of the value in the exported program."""
    module: str
    operator: str
    alone: float
    """The ratio of the layer alone, on operands of the float model, quantized."""
    whole: float
    """The ratio of the program up to the layer."""
    steps: int | None
    """The largest difference of the integer operator alone from q/dq; None if it stays in floating point."""


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of a quantized model relative to its float model."""

    result: float
    """Signal to noise of the results, in dB."""
    layers: tuple[LayerAccuracy, ...]
    """The quantized values, the worst alone first."""
    tried: Mapping[tuple[str, ...], float]
    """Signal to noise of the results with some of the worst layers in floating point."""

    def worst(self, count: int) -> tuple[str, ...]:
        """Return the names of the ``count`` worst layers, for `quantize(..., keep_float=...)`."""
        return tuple(layer.name for layer in self.layers[:count])

    def __str__(self) -> str:
        steps = [layer.steps for layer in self.layers if layer.steps is not None]
        lines = [f"results: {self.result:.1f} dB signal to noise relative to the float model"]
        lines.append(f"integer operators: {len(steps)}, each alone at most {max(steps, default=0)} steps from q/dq")
        lines.append(f"worst layers of {len(self.layers)}:")
        for layer in self.layers[:_SHOWN]:
            place = f" in {layer.module}" if layer.module else ""
            lines.append(f"  {layer.alone:6.1f} dB alone, {layer.whole:6.1f} dB so far: {layer.name}{place}")
        for names, ratio in self.tried.items():
            lines.append(f"in floating point, {', '.join(names)}: results {ratio:.1f} dB")
        return "\n".join(lines)


def accuracy(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any],
    quantized: torch.fx.GraphModule,
    inputs: Iterable[Any],
    *,
    tries: int = 0,
) -> Accuracy:
    """Compare a quantized model with its float model, by layer.

    Args:
        f: the float model, as `quantize` took it.
        quantized: what `quantize` returned for it, or PT2E for the same exported program.
        inputs: inputs of the float model, as `quantize` takes them.
        tries: how often to quantize again, with the worst layer in floating point, then the two worst, four, and so
            on. ``inputs`` are its calibration.

    Raises:
        NotInstalledError: without torchao.
        UsageError: for inputs that are missing or differ, and if ``quantized`` is another model.
        ExportError: if torch.export cannot capture ``f``.
    """
    check_torchao()
    calls = calls_of(inputs)
    reference = float_reference(exported(f, calls, ExportOptions()))
    layers: dict[str, LayerErrors] = {}
    steps: dict[str, int] = {}
    result = Powers()
    graph = quantized.graph
    names = {node.args[0].name for node in graph.nodes if kind_of(node) == "quantize"}
    program: ExportedProgram | None = None
    with torch.no_grad(), unchanged(quantized, ()), unchanged(reference, ()):
        for call in calls:
            leaves = _given(quantized, call)
            measure(quantized, leaves, values_of(reference, flat(*call), names), layers)
            if not layers:
                raise UsageError(_OTHER)
            program = program or exported_quantized(quantized, call)
            for name, count in steps_from_qdq(program, leaves).items():
                steps[name] = max(count, steps.get(name, 0))
            result.add(*_results(reference, quantized, call, leaves))  # both advance their state
    measured = [
        LayerAccuracy(name, layer.module, layer.operator, layer.alone.ratio, layer.whole.ratio, steps.get(name))
        for name, layer in layers.items()
    ]
    ordered = tuple(sorted(measured, key=lambda layer: layer.alone))
    return Accuracy(result.ratio, ordered, _tried(f, reference, ordered, calls, tries))


def _tried(
    f: Any, reference: torch.fx.GraphModule, layers: Sequence[LayerAccuracy], calls: Sequence[Call], tries: int
) -> dict[tuple[str, ...], float]:
    ratios: dict[tuple[str, ...], float] = {}
    inputs = [_Inputs(*call) for call in calls]
    candidates = [layer.name for layer in layers if layer.operator.startswith("aten.")]
    for count in [2**exponent for exponent in range(tries)]:
        names = tuple(candidates[:count])
        mixed, powers = quantize(f, inputs, keep_float=names), Powers()
        with torch.no_grad(), unchanged(reference, ()):
            for call in calls:
                powers.add(*_results(reference, mixed, call, flat(*call)))
        ratios[names] = powers.ratio
    return ratios


@dataclass(frozen=True)
class _Inputs:
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def _results(
    reference: torch.fx.GraphModule, quantized: torch.fx.GraphModule, call: Call, inputs: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """Return the results of both, as one vector each. Both advance their state; inputs stay as they are."""
    scales = quantized.meta.get("result_scales")
    with torch.no_grad():
        leaves, inputs = (
            [part.clone() if isinstance(part, Tensor) else part for part in x] for x in (flat(*call), inputs)
        )
        expected = tree_leaves(torch.fx.Interpreter(reference).run(*leaves, enable_io_processing=False))
        results = tree_leaves(torch.fx.Interpreter(quantized).run(*inputs, enable_io_processing=False))
    pairs = [
        (layer, result if scale is None else (result.float() - scale[1]) * scale[0])
        for layer, result, scale in zip(expected, results, scales or [None] * len(results), strict=True)
        if isinstance(layer, Tensor)
    ]
    if any(expected.shape != actual.shape for expected, actual in pairs):
        raise UsageError(_OTHER)
    vectors = (torch.cat([pair[side].double().reshape(-1) for pair in pairs]) for side in (0, 1))
    return next(vectors), next(vectors)


def _given(quantized: torch.fx.GraphModule, call: Call) -> list[Any]:
    """Return the flat inputs of the quantized model for a call of the float model."""
    leaves = flat(*call)
    scales = quantized.meta.get("input_scales") or [None] * len(leaves)
    placeholders: list[Any] = []
    for leaf, scale, node in zip(leaves, scales, quantized.graph.find_nodes(op="placeholder"), strict=True):
        if scale is not None:
            kind = next(user.args[5] for user in node.users if kind_of(user) == "dequantize")
            limits = torch.iinfo(kind)
            leaf = (leaf / scale[0] + scale[1]).round().clamp(limits.min, limits.max).to(kind)
        placeholders.append(leaf)
    return placeholders


def exported_quantized(quantized: torch.fx.GraphModule, call: Call) -> ExportedProgram:
    """Return a quantized model exported with the inputs of a call of the float model."""
    _, structure = tree_flatten((tuple(call[0]), dict(call[1])))
    args, kwargs = tree_unflatten(_given(quantized, call), structure)
    return export_program(quantized, args, kwargs, ExportOptions())

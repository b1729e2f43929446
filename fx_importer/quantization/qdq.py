"""Q/DQ of a graph, and their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UsageError
from fx_importer.quantization.scales import Params

_PREFIX = "quantized_decomposed."
_MARK = "fx_importer"
"""The key of `mark_as_from_quantize` in custom metadata of a node."""
_PER_TENSOR = {
    f"{kind}_per_tensor.{overload}" for kind in ("quantize", "dequantize") for overload in ("default", "tensor")
}

_CHECKED = {
    f"{_PREFIX}dequantize_per_{suffix}"
    for suffix in ("tensor.default", "tensor.tensor", "tensor.tensor2", "channel.default")
}
"""The operators whose operand must have the dtype that they name."""

Value = Callable[[object], "Tensor | None"]
"""Returns the value of a node that is constant."""


def kind_of(node: fx.Node) -> str | None:
    """Return "quantize" or "dequantize" for Q/DQ of any granularity; None for others."""
    name = str(node.target)
    if node.op != "call_function" or not name.startswith(_PREFIX):
        return None
    return next((kind for kind in ("dequantize", "quantize") if name.startswith(_PREFIX + kind)), None)


def is_quantized(graph: fx.Graph) -> bool:
    """Return whether ``graph`` has quantize or dequantize operators."""
    return any(kind_of(node) for node in graph.nodes)


def mark_as_from_quantize(graph: fx.Graph) -> None:
    """Mark the Q/DQ of ``graph`` as made by `fx_importer.quantize`, in metadata that torch.export and .pt2 keep."""
    for node in graph.nodes:
        if kind_of(node):
            node.meta["custom"] = {**node.meta.get("custom", {}), _MARK: "quantize"}


def is_from_quantize(graph: fx.Graph) -> bool:
    """Return whether `fx_importer.quantize` made Q/DQ of ``graph``."""
    notes = (node.meta.get("custom") for node in graph.nodes if kind_of(node))
    return any(isinstance(note, dict) and note.get(_MARK) == "quantize" for note in notes)


def params_of(node: fx.Node, value: Value) -> Params | None:
    """Return the parameters of an operator per tensor on int8, or symmetric on int16; None for others.

    Parameters of uint8 describe the values minus 128, as int8.

    Raises:
        UsageError: for a scale that is zero, negative or no number, and a zero point outside of the range.
    """
    if kind_of(node) is None or str(node.target).removeprefix(_PREFIX) not in _PER_TENSOR:
        return None
    scale, zero_point, low, high, dtype = (_number(argument, value) for argument in node.args[1:6])
    if scale is None or zero_point is None:
        return None
    check_scales(node, [scale])
    if not low <= zero_point <= high:
        raise UsageError(f"{described(node)}: the zero point {zero_point} is outside of the range {low} to {high}")
    if dtype is torch.int16 and zero_point == 0:  # TOSA's int16 has no zero points
        return Params(float(scale), 0, int(low), int(high), 16)
    offset = 128 if dtype is torch.uint8 else 0
    if dtype not in (torch.int8, torch.uint8) or low < offset - 128 or high > offset + 127:
        return None
    return Params(float(scale), int(zero_point) - offset, int(low) - offset, int(high) - offset)


def is_unsigned(node: fx.Node) -> bool:
    """Return whether a quantize or dequantize operator per tensor is of uint8."""
    return len(node.args) > 5 and node.args[5] is torch.uint8


@dataclass(frozen=True)
class QuantizedWeight:
    """The integers of a quantized constant, its scales and its zero points: one, or one for each channel."""

    values: Tensor
    source: fx.Node | None
    """The node of ``values``; None if the graph has none."""
    scales: Tensor
    zero_points: Tensor
    axis: int | None
    """The axis of the channels; None for one scale."""


def weight_of(node: fx.Node, value: Value) -> QuantizedWeight | None:
    """Return the operands of a dequantize operator of a constant; None for others.

    Raises:
        UsageError: for a scale that is zero, negative or no number.
    """
    if kind_of(node) != "dequantize" or (values := value(node.args[0])) is None:
        return None
    name, source = str(node.target).removeprefix(_PREFIX), node.args[0]
    assert isinstance(source, fx.Node)
    scales, zeros = (_vector(argument, value) for argument in node.args[1:3])
    if scales is None:
        return None
    check_scales(node, scales.tolist())
    zeros = torch.zeros(len(scales), dtype=torch.int64) if zeros is None else zeros.long()
    if values.dtype is torch.uint8:
        values, source, zeros = (values.short() - 128).to(torch.int8), None, zeros - 128
    if name in _PER_TENSOR:
        return QuantizedWeight(values, source, scales, zeros, None)
    if name == "dequantize_per_channel.default":
        return QuantizedWeight(values, source, scales, zeros, int(node.args[3]) % values.dim())  # type: ignore[arg-type]
    return None


def check_dtypes(program: ExportedProgram) -> None:
    """Raise `UsageError` for a dequantize operator whose operand is not of the dtype that it names.

    Eager PyTorch raises an error for it; torch.export, unlike for quantize operators, does not.
    """
    for node in program.graph.nodes:
        if str(node.target) in _CHECKED:
            operand, dtype = node.args[0], node.args[0].meta["val"].dtype
            named = next((argument for argument in node.args if isinstance(argument, torch.dtype)), dtype)
            if dtype != named:
                what = "the program's input" if operand.op == "placeholder" else "its operand"
                raise UsageError(f"{described(node)}: {what} '{operand.name}' is {dtype}; the operator takes {named}")


def check_scales(node: fx.Node, scales: list[float]) -> None:
    """Raise `UsageError` unless all ``scales`` of ``node`` are positive and finite."""
    wrong = [scale for scale in scales if not (math.isfinite(scale) and scale > 0)]
    if wrong:
        raise UsageError(
            f"{described(node)}: {'a scale' if len(scales) > 1 else 'the scale'} is {wrong[0]}; scales are positive "
            "and finite: calibrate with inputs that are finite, and not all zero"
        )


def described(node: fx.Node) -> str:
    """Return the name and the operator of ``node``, and the user's line if it is known."""
    where = unsupported_node(node, "").where
    return f"{node.name} = {node.target}" + (f" (at {where})" if where else "")


def _number(argument: object, value: Value) -> Any:
    if not isinstance(argument, fx.Node):
        return argument
    tensor = value(argument)
    return tensor.item() if tensor is not None and tensor.numel() == 1 else None


def _vector(argument: object, value: Value) -> Tensor | None:
    if isinstance(argument, fx.Node):
        tensor = value(argument)
        return None if tensor is None else tensor.reshape(-1).double()
    return torch.tensor([float(argument)], dtype=torch.float64) if isinstance(argument, int | float) else None

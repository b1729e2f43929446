"""Rescales from one scale and zero point to another, and uint8 as int8."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from fx_importer.lowerings import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.integer_operators import PER_TENSOR, centered, defines, integer, requantized
from fx_importer.quantization.qdq import is_unsigned
from fx_importer.quantization.rule import Family, Scope
from fx_importer.quantization.scales import Params, multiplier_and_shift, out_of
from fx_importer.quantization.tosa_emission import emit_clamp, emit_requantized, emit_rescale


def store(scope: Scope, quantize: fx.Node, x: fx.Node) -> fx.Node:
    """Return ``x`` in the dtype of a quantize operator."""
    return scope.call(quantize, integer.to_unsigned.default, x) if is_unsigned(quantize) else x


def load(scope: Scope, dequantize: fx.Node, x: fx.Node) -> fx.Node:
    """Return ``x``, the operand of a dequantize operator, as int8 or int16: uint8 less 128."""
    if not is_unsigned(dequantize):
        return x
    if x.target is integer.to_unsigned.default:
        return x.args[0]  # type: ignore[return-value]
    return scope.call(dequantize, integer.to_signed.default, x)


def fold_rescale(scope: Scope, at: fx.Node, x: fx.Node, old: Params, new: Params) -> fx.Node:
    """Return ``x`` with the parameters ``new`` instead of ``old``. Raises `NoIntegerForm`."""
    same = (old.scale, old.zero_point, old.bits) == (new.scale, new.zero_point, new.bits)
    if same and new.low <= old.low and old.high <= new.high:
        return x
    multiplier, shift = multiplier_and_shift(1.0 if same else old.scale / new.scale, old.reach)
    return scope.call(at, integer.rescale.default, x, old.zero_point, multiplier, shift, *out_of(new))


@defines("Tensor x", torch.Tag.pointwise)
def to_signed(x: Tensor) -> Tensor:
    """Return the uint8 ``x`` less 128, as int8."""
    return (x.to(torch.int16) - 128).to(torch.int8)


@defines("Tensor x", torch.Tag.pointwise)
def to_unsigned(x: Tensor) -> Tensor:
    """Return the int8 ``x`` plus 128, as uint8."""
    return (x.to(torch.int16) + 128).to(torch.uint8)


@defines(f"Tensor x, int zero_point, {PER_TENSOR}", torch.Tag.pointwise)
def rescale(x: Tensor, zero_point: int, *out: int) -> Tensor:
    """Return ``x`` with another scale and zero point."""
    return requantized(centered(x, zero_point), *out)


_UNCHANGED = (2**30, 30)
"""The multiplier and the shift of one."""


@lowers(integer.to_signed.default, into="tosa")
def tosa_to_signed(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit the rescale of uint8 to int8."""
    return emit_rescale(emit, x, "i8", [_UNCHANGED[0]], [_UNCHANGED[1]], -128, 0, unsigned="input_unsigned")


@lowers(integer.to_unsigned.default, into="tosa")
def tosa_to_unsigned(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit the rescale of int8 to uint8."""
    return emit_rescale(emit, x, "i8", [_UNCHANGED[0]], [_UNCHANGED[1]], 0, -128, unsigned="output_unsigned")


@lowers(integer.rescale.default, into="tosa")
def tosa_rescale(emit: TosaEmitter, x: ir.Value, zero_point: int, multiplier: int, shift: int, *out: int) -> ir.Value:
    """Emit a rescale to another zero point, and a clamp."""
    if (multiplier, shift) == _UNCHANGED and zero_point == out[0] and x.type == emit.results[0]:
        return emit_clamp(emit, x, *out[1:3])
    return emit_requantized(emit, x, [multiplier], [shift], *out, zero_point=zero_point)


FAMILY = Family(
    operators=(to_signed, to_unsigned, rescale),
    lowerings=(tosa_to_signed, tosa_to_unsigned, tosa_rescale),
)

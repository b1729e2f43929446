"""Operators of programs that are quantized: small differences of arguments stay small."""

from __future__ import annotations

from testing.fuzzing.draw import Draw, Proposal

BINARY = ("add", "sub", "mul", "maximum", "minimum")
ACTIVATIONS = ("relu", "relu6", "hardtanh", "sigmoid", "tanh", "gelu", "silu", "hardswish", "hardsigmoid", "leaky_relu")


def binary(draw: Draw) -> Proposal:
    a = draw.floating()
    return f"torch.{draw.one(BINARY)}", (a, draw.beside(a)), {}


def activation(draw: Draw) -> Proposal:
    return f"torch.nn.functional.{draw.one(ACTIVATIONS)}", (draw.floating(),), {}


def mean(draw: Draw) -> Proposal:
    x = draw.floating(1, 4)
    return "torch.mean", (x, draw.axis(x)), {"keepdim": draw.chance(0.5)}


def remembered(draw: Draw) -> Proposal:
    """Propose a write of a value into one of its shape: a state or an input, if the program has some."""
    x = draw.floating()
    same = [ref for ref, value in draw.values.items() if value.shape == draw[x].shape and ref != x]
    return "torch.Tensor.copy_", (draw.one(same) if same else draw.new(draw[x].shape), x), {}

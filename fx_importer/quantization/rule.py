"""Records of operator families, and the interface of the graph to their folding rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, fx

from fx_importer.lowerings import Lowering
from fx_importer.quantization.graph_constants import GraphConstants
from fx_importer.quantization.scales import NoIntegerForm, Params

DYNAMIC_SIZES = "its sizes are dynamic"
"""The reason of operators that have no integer form for dynamic sizes."""


class Scope(Protocol):
    """The graph whose operators fold to integers. Methods that return nodes raise `NoIntegerForm`."""

    constants: GraphConstants

    def integer(self, node: Any, params: Params) -> fx.Node:
        """Return the float ``node`` quantized with ``params``, computed in integers."""
        ...

    def quantized(self, node: object) -> tuple[fx.Node, Params]:
        """Return the integers and the parameters that the float ``node`` is dequantized from."""
        ...

    def call(self, at: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Insert a call before ``at``, with its source line and an example value."""
        ...

    def moves(self, node: fx.Node) -> bool:
        """Return whether ``node`` moves elements without computing."""
        ...


Fold = Callable[[Scope, fx.Node, Params], fx.Node]
"""Computes the float node of its second argument in integers with the parameters. Raises `NoIntegerForm`."""
Move = Callable[[Scope, fx.Node, Callable[[Any], fx.Node], "Params | None"], fx.Node]
"""Calls a node on the integers that its third argument returns for an operand; parameters where they are known."""


@dataclass(frozen=True)
class FloatSums:
    """The int32 sums of a product whose result stays in floating point: ``sums * scales + bias``."""

    operand: Params
    """The parameters of the first operand."""
    params: Params
    """The parameters of the sums."""
    scales: Tensor
    """One scale, or one for each channel."""
    bias: fx.Node | None
    trailing: int = 0
    """The number of axes after the channels."""


def _inputs(node: fx.Node) -> list[fx.Node]:
    return node.all_input_nodes


def always(node: fx.Node, constants: Collection[fx.Node]) -> bool:
    """Return True: post-training quantization quantizes every call."""
    return True


def never(node: fx.Node, constants: Collection[fx.Node]) -> bool:
    """Return False: only programs that are quantized already have the operator."""
    return False


@dataclass(frozen=True)
class Rule:
    """How an ATen operator is quantized."""

    fold: Fold
    sums: Callable[[Scope, fx.Node], FloatSums] | None = None
    """For products: the int32 sums of a call whose result stays in floating point."""
    accepts: Callable[[fx.Node, Collection[fx.Node]], bool] = always
    """Whether post-training quantization quantizes a node; the second argument holds the constant nodes."""
    inputs: Callable[[fx.Node], list[fx.Node]] = _inputs
    """The operands to quantize."""
    weight_axis: int | None = None
    """Of operators ``(x, weight, bias, ...)``: the axis of the weight's output channels, each with its own scale."""
    quantizes_constants: bool = True
    """Whether constant operands are quantized as activations are."""
    shares_scale: bool = False
    """Whether the result has the scale of the operand."""


@dataclass(frozen=True)
class Family:
    """Operators that are quantized alike: folding rules, integer operators with eager forms, and their lowerings."""

    rules: Mapping[Any, Rule] = field(default_factory=dict[Any, Rule])
    """By ATen operator that computes."""
    moves: Mapping[Any, Move] = field(default_factory=dict[Any, Move])
    """By ATen operator that moves elements or takes maxima, and so commutes with quantization."""
    operators: tuple[Callable[..., Tensor], ...] = ()
    """Eager forms of the integer operators, of the same name."""
    lowerings: tuple[Lowering, ...] = ()
    result_scales: Mapping[Any, tuple[float, int]] = field(default_factory=dict[Any, tuple[float, int]])
    """Scale and zero point of operators whose results have a known range."""


def arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call by name, with defaults."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    values = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    values |= {argument.name: value for argument, value in zip(schema, node.args, strict=False)}
    return values | dict(node.kwargs)


BATCH = (0,)
"""The axes of an image, ``[N, C, H, W]``, or a signal that may be dynamic."""


def shape_of(node: object, dynamic: Collection[int] = ()) -> list[Any]:
    """Return the sizes of the value of ``node``: numbers, and at most one symbolic size, along an axis of ``dynamic``.

    One, since a reshape of TOSA infers one. Raises `NoIntegerForm` for other dynamic sizes.
    """
    assert isinstance(node, fx.Node)
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        raise NoIntegerForm(DYNAMIC_SIZES)
    symbolic = [axis for axis, size in enumerate(value.shape) if not isinstance(size, int)]
    if len(symbolic) > 1 or not set(symbolic) <= set(dynamic):
        raise NoIntegerForm(DYNAMIC_SIZES)
    return list(value.shape)


def axes_before(node: object, last: int) -> range:
    """Return the axes of the value of ``node`` before its ``last`` ones."""
    assert isinstance(node, fx.Node)
    value = node.meta.get("val")
    return range(value.dim() - last) if isinstance(value, Tensor) else range(0)


def is_activation(node: fx.Node) -> bool:
    """Return whether the value of ``node`` is a float32 tensor."""
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype is torch.float32


def two_activations(node: fx.Node, constants: Collection[fx.Node]) -> bool:
    """Return whether a node combines two float32 tensors without further arguments."""
    tensors = [operand for operand in node.args[:2] if isinstance(operand, fx.Node) and is_activation(operand)]
    return len(tensors) == 2 and not node.kwargs

"""What the rules of operators ask of the folding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import fx

from fx_importer.quantization.graph_constants import GraphConstants
from fx_importer.quantization.scales import Params


class Scope(Protocol):
    """The graph that is folded. All methods raise `NoIntegerForm`."""

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


Rule = Callable[[Scope, fx.Node, Params], fx.Node]
"""Emits the float node of its second argument, quantized. Raises `NoIntegerForm`."""


def arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call by name, with defaults."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = {each.name: each.default_value for each in schema if each.has_default_value()}
    given |= {each.name: value for each, value in zip(schema, node.args, strict=False)}
    return given | dict(node.kwargs)

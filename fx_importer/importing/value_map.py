"""Mapping of FX nodes to MLIR values."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.mlir.bindings import ir

Binding = ir.Value | tuple["Binding", ...] | None
"""One value, the results of a multi-result operation, or None if there is no value at run time (a token)."""
Results = ir.Value | Sequence["Results"] | None
"""The result of a handler: a `Binding`, with any sequence in place of the tuple."""


class Environment:
    """Bindings of nodes to values. Only the walker adds to it."""

    def __init__(self) -> None:
        self._values: dict[fx.Node, Binding] = {}

    def bind(self, node: fx.Node, value: Results) -> None:
        """Bind ``node``. A sequence holds the results of a multi-result operation."""
        assert node not in self._values, f"{node} is bound already"
        self._values[node] = _binding(value)

    def __contains__(self, node: fx.Node) -> bool:
        return node in self._values

    def binding(self, node: fx.Node) -> Binding:
        """Return the binding of ``node``."""
        return self._values[node]

    def value(self, node: fx.Node) -> ir.Value:
        """Return the single value of ``node``."""
        value = self._values[node]
        assert value is not None, f"{node} has no value"
        assert isinstance(value, ir.Value), f"{node} has {len(value)} results; take one with getitem"
        return value


def _binding(value: Results) -> Binding:
    return value if value is None or isinstance(value, ir.Value) else tuple(_binding(item) for item in value)

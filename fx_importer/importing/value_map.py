"""Which MLIR values stand for which FX nodes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.mlir.bindings import ir

Binding = ir.Value | tuple["Binding", ...] | None
"""One value, or the results of an operation that has several; None for what has no value at run time (a token)."""
Results = ir.Value | Sequence["Results"] | None
"""What a handler returns: a `Binding`, with any sequence for the tuple."""


class Environment:
    """Bindings of nodes to values. The walker is its one writer."""

    def __init__(self) -> None:
        self._values: dict[fx.Node, Binding] = {}

    def bind(self, node: fx.Node, value: Results) -> None:
        """Bind ``node``; a sequence stands for the results of a multi-result operation."""
        assert node not in self._values, f"{node} is bound already"
        self._values[node] = _binding(value)

    def __contains__(self, node: fx.Node) -> bool:
        return node in self._values

    def binding(self, node: fx.Node) -> Binding:
        """Return what ``node`` is bound to."""
        return self._values[node]

    def value(self, node: fx.Node) -> ir.Value:
        """Return the one value of ``node``."""
        found = self._values[node]
        assert found is not None, f"{node} has no value"
        assert isinstance(found, ir.Value), f"{node} has {len(found)} results; take one with getitem"
        return found


def _binding(value: Results) -> Binding:
    return value if value is None or isinstance(value, ir.Value) else tuple(_binding(each) for each in value)

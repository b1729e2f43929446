"""Locations of nodes: the qualified name of the module around the user's call stack."""

from __future__ import annotations

from torch import fx

from fx_importer.diagnostics.mlir_diagnostics import read_frames
from fx_importer.fx_graph.programs import module_name
from fx_importer.mlir.bindings import ir


class Locations:
    """Cache of the locations of one context, one per distinct (module, call stack)."""

    def __init__(self, context: ir.Context):
        self.unknown = ir.Location.unknown(context)
        self._context = context
        self._known: dict[tuple[str | None, str | None], ir.Location] = {(None, None): self.unknown}

    def of(self, node: fx.Node) -> ir.Location:
        """Return ``"module.name"(callsite(innermost frame at … at outermost frame))`` as far as the node records it."""
        key = (module_name(node), node.meta.get("stack_trace"))
        location = self._known.get(key)
        if location is None:
            location = self._known[key] = self._make(*key)
        return location

    def named(self, name: str) -> ir.Location:
        """Return a name location, for an argument or a weight."""
        return ir.Location.name(name, context=self._context)

    def _make(self, module: str | None, trace: str | None) -> ir.Location:
        frames = [ir.Location.file(file, line, 0, context=self._context) for file, line in reversed(read_frames(trace))]
        stack = ir.Location.callsite(frames[0], frames[1:], context=self._context) if frames[1:] else None
        inner = stack or (frames[0] if frames else None)
        return ir.Location.name(module, inner, context=self._context) if module else inner or self.unknown

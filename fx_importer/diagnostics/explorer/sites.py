"""Sites: the call stacks and submodules that operations and FX nodes came from, numbered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import fx

from fx_importer.diagnostics.mlir_diagnostics import is_torch, read_frames, read_location
from fx_importer.fx_graph.module_names import module_name
from fx_importer.mlir.bindings import ir

Frame = tuple[str, int]


@dataclass(frozen=True)
class Site:
    """Where an operation came from."""

    module: str | None
    """The qualified name of the ``nn.Module``."""
    frames: tuple[Frame, ...]
    """``(file, line)`` outside of torch, innermost first."""


@dataclass
class Sites:
    """The distinct sites of a report, and the distinct sets of them, by number."""

    numbers: dict[Site, int] = field(default_factory=dict)
    sets: dict[tuple[int, ...], int] = field(default_factory=dict)
    _of_location: dict[ir.Attribute, int] = field(default_factory=dict)

    def of_location(self, location: ir.Location) -> int:
        """Return the number of the set of sites that ``location`` holds, of which fused locations have several."""
        key = location.attr
        if key not in self._of_location:
            self._of_location[key] = self._set(_sites(location))
        return self._of_location[key]

    def of_node(self, node: fx.Node) -> int:
        """Return the number of the set of the site of an FX node."""
        frames = tuple(reversed(read_frames(node.meta.get("stack_trace"))))
        return self._set(iter([_site(frames, module_name(node))]))

    def _set(self, sites: Iterator[Site]) -> int:
        known = [each for each in sites if each.module or each.frames]
        numbers = tuple(sorted({self.numbers.setdefault(each, len(self.numbers)) for each in known}))
        return self.sets.setdefault(numbers, len(self.sets))


def _sites(location: ir.Location) -> Iterator[Site]:
    location = ir.Location.from_attr(location.attr, location.context)  # as its own class
    if isinstance(location, ir.FusedLoc):
        for part in location.locations:
            yield from _sites(part)
    else:
        frames, names = read_location(location)
        yield _site(frames, names[0] if names and frames else None)  # a name alone is that of a value


def _site(frames: tuple[Frame, ...], module: str | None) -> Site:
    return Site(module, tuple(each for each in frames if not is_torch(each[0])))

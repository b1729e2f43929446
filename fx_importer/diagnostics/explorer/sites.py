"""Sites: the call stacks and submodules that operations and FX nodes came from, numbered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import fx

from fx_importer.diagnostics.mlir_diagnostics import is_torch, read_frames, read_location
from fx_importer.fx_graph.programs import module_classes, module_name
from fx_importer.mlir.bindings import ir

Frame = tuple[str, int]

_MOST_USERS = 16
"""Sites beyond which a constant is not linked with its users: a mask that every layer reads came from none of them."""


@dataclass(frozen=True)
class Site:
    """Where an operation came from."""

    module: str | None
    """The qualified name of the ``nn.Module``."""
    frames: tuple[Frame, ...]
    """``(file, line)`` outside of torch, innermost first."""


@dataclass
class Sites:
    """The distinct sites of a report, and the distinct sets of them, by number. Set 0 is empty."""

    numbers: dict[Site, int] = field(default_factory=dict)
    sets: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    classes: dict[str, str] = field(default_factory=dict)
    """Names of the classes of submodules, by qualified name; the model's own is ``""``."""
    _set_numbers: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})
    _of_location: dict[ir.Attribute, int] = field(default_factory=dict)

    def of_location(self, location: ir.Location) -> int:
        """Return the number of the set of sites in ``location``; a fused location has several sites."""
        key = location.attr
        if key not in self._of_location:
            self._of_location[key] = self._set(_sites(location))
        return self._of_location[key]

    def of_node(self, node: fx.Node) -> int:
        """Return the number of the set of the site of an FX node."""
        self.classes.update(module_classes(node))
        frames = tuple(reversed(read_frames(node.meta.get("stack_trace"))))
        return self._set([_site(frames, module_name(node))])

    def of_users(self, users: Iterable[int]) -> int:
        """Return the number of the union of the sets of the users of a value; of the empty set if they are many."""
        united = {site for number in set(users) for site in self.sets[number]}
        return self._number(united if len(united) <= _MOST_USERS else ())

    def _set(self, sites: Iterable[Site]) -> int:
        known = [site for site in sites if site.module or site.frames]
        return self._number({self.numbers.setdefault(site, len(self.numbers)) for site in known})

    def _number(self, members: Iterable[int]) -> int:
        key = tuple(sorted(members))
        if key not in self._set_numbers:
            self._set_numbers[key] = len(self.sets)
            self.sets.append(key)
        return self._set_numbers[key]


def _sites(location: ir.Location) -> Iterator[Site]:
    location = ir.Location.from_attr(location.attr, location.context)  # as its own class
    if isinstance(location, ir.FusedLoc):
        for part in location.locations:
            yield from _sites(part)
    else:
        frames, names = read_location(location)
        yield _site(frames, names[0] if names and frames else None)  # a lone name is a value's


def _site(frames: tuple[Frame, ...], module: str | None) -> Site:
    return Site(module, tuple(frame for frame in frames if not is_torch(frame[0])))

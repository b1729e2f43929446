"""Causes of a failed lowering, as values: the unsupported operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.diagnostics.mlir_diagnostics import is_torch, read_location, user_frame
from fx_importer.diagnostics.source_lines import source_line
from fx_importer.mlir.bindings import ir

NO_MATCH_ATTRIBUTE = "fx_importer.declined"
"""Attribute of an imported operator that lists the user's lowerings that did not match, with reasons."""


@dataclass(frozen=True)
class Place:
    """Source line and module of the user's model that an operator came from."""

    file: str | None = None
    line: int | None = None
    source: str | None = None
    """The text of the line."""
    module: str | None = None
    """The qualified name of the ``nn.Module``."""

    @classmethod
    def of(cls, location: ir.Location) -> Place:
        """Return the place that ``location`` refers to."""
        frames, names = read_location(location)
        frame = user_frame(frames)
        module = names[0] if names else None
        if frame is None or is_torch(frame[0]):
            return cls(module=module)
        return cls(frame[0], frame[1], source_line(*frame), module)

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}" if self.file else "an unknown line"
        return f"at {at}" + (f" in {self.module}" if self.module else "") + (f": {self.source}" if self.source else "")


@dataclass(frozen=True)
class Cause:
    """An operator, with operand types, that an output type does not support."""

    op: str
    """The overload: ``"aten.unfold.default"``."""
    call: str
    """With the dtypes and shapes of its tensors: ``"aten.unfold.default(f32[4,4], 0, 2, 1) -> f32[3,4,2]"``."""
    places: tuple[Place, ...]
    """One entry for each call."""
    stage: str
    """The stage that failed on it."""
    reason: str
    """MLIR's diagnostic when the operator is lowered alone, or how the process crashed."""
    suggestions: tuple[str, ...] = ()
    """Changes with which the whole program lowers; the same for all causes of a failure."""

    def __str__(self) -> str:
        times = f", {len(self.places)} times" if len(self.places) > 1 else ""
        lines = [f"{self.call}{times}", f"  stage '{self.stage}': {self.reason}"]
        counts = {place: self.places.count(place) for place in self.places}
        for place, count in counts.items():
            lines.append(f"  {place}" + (f" ({count} times)" if 1 < count < len(self.places) else ""))
        lines.extend(f"  try: {suggestion}" for suggestion in self.suggestions)
        return "\n".join(lines)


@dataclass(frozen=True)
class Diagnosis:
    """The known causes of a failed lowering."""

    causes: tuple[Cause, ...] = ()
    """The operators that fail alone."""
    suggestions: tuple[str, ...] = ()
    """Changes with which the whole program lowers."""
    remark: str = ""
    """Why ``causes`` may be incomplete, if they may."""


class IncompleteSearch(Exception):
    """The search for unsupported operators took too long; ``causes`` are those found until then."""

    def __init__(self, causes: Sequence[Cause], seconds: float, tried: int, total: int):
        self.causes = tuple(causes)
        super().__init__(
            f"the search for unsupported operators stopped after {seconds:g} s, when {tried} of {total} distinct calls "
            "had been tried; explain() tries all"
        )


def headline(causes: Sequence[Cause]) -> str:
    """Return the number of unsupported operators and calls in words."""
    operators, calls = len({cause.op for cause in causes}), sum(len(cause.places) for cause in causes)
    count = "1 unsupported operator" if operators == 1 else f"{operators} unsupported operators"
    return count + (f", in {calls} calls" if calls > 1 else "")

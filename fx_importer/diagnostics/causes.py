"""Why a lowering failed, operator by operator, as values."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.diagnostics.mlir_diagnostics import is_torch, read_location, user_frame
from fx_importer.mlir.bindings import ir

DECLINED = "fx_importer.declined"
"""The attribute of an imported operator that says which of the user's rules did not take it, and why."""


@dataclass(frozen=True)
class Place:
    """Where in the user's model an operator came from."""

    file: str | None = None
    line: int | None = None
    source: str | None = None
    """The text of the line."""
    module: str | None = None
    """The qualified name of the ``nn.Module``."""

    @classmethod
    def of(cls, location: ir.Location) -> Place:
        """Return the place that ``location`` says."""
        frames, names = read_location(location)
        frame = user_frame(frames)
        module = names[0] if names else None
        if frame is None or is_torch(frame[0]):
            return cls(module=module)
        return cls(frame[0], frame[1], linecache.getline(*frame).strip() or None, module)

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}" if self.file else "an unknown line"
        return f"at {at}" + (f" in {self.module}" if self.module else "") + (f": {self.source}" if self.source else "")


@dataclass(frozen=True)
class Cause:
    """One operator, called in one way, that an output type cannot take."""

    op: str
    """The overload: ``"aten.unfold.default"``."""
    call: str
    """With the dtypes and shapes of its tensors: ``"aten.unfold.default(f32[4,4], 0, 2, 1) -> f32[3,4,2]"``."""
    places: tuple[Place, ...]
    """Where it is called, once for each call; so their number is how often."""
    stage: str
    """The stage that refused it."""
    reason: str
    """What MLIR says of it alone; or how it ended the process."""
    suggestions: tuple[str, ...] = ()

    def __str__(self) -> str:
        times = f", {len(self.places)} times" if len(self.places) > 1 else ""
        lines = [f"{self.call}{times}", f"  stage '{self.stage}': {self.reason}"]
        counts = {place: self.places.count(place) for place in self.places}
        for place, count in counts.items():
            lines.append(f"  {place}" + (f" ({count} times)" if 1 < count < len(self.places) else ""))
        lines.extend(f"  try: {suggestion}" for suggestion in self.suggestions)
        return "\n".join(lines)


def headline(causes: Sequence[Cause]) -> str:
    """Return how many operators are refused, as a sentence without a full stop."""
    operators, calls = len({cause.op for cause in causes}), sum(len(cause.places) for cause in causes)
    named = "1 operator is" if operators == 1 else f"{operators} operators are"
    return f"{named} refused" + (f", in {calls} calls" if calls > 1 else "")

"""The frozen values that pipelines consist of. ``str()`` of each is MLIR's pass-pipeline syntax.

MLIR does not know the name of a `RewriteStep`; `fx_importer.pipelines.pipeline_parser` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fx_importer.mlir.walk import Option, RewriteStep, option_text


@dataclass(frozen=True)
class Pass:
    """A pass, or a registered pass pipeline of MLIR, with options: ``cse``, ``convert-torch-to-linalg{…}``."""

    name: str
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        listed = " ".join(f"{key}={option_text(value)}" for key, value in self.options.items())
        return f"{self.name}{{{listed}}}" if listed else self.name


@dataclass(frozen=True)
class Nested:
    """Passes nested on the operation ``anchor``: ``func.func(cse,canonicalize)``."""

    anchor: str
    passes: tuple[Pass | Nested, ...]

    def __str__(self) -> str:
        return f"{self.anchor}({','.join(map(str, self.passes))})"


Step = Pass | Nested | RewriteStep


@dataclass(frozen=True)
class Stage:
    """A named sequence of passes: it is timed, named in errors, and can be reproduced alone."""

    name: str
    description: str
    """The state of the module after the stage, in one sentence."""
    passes: tuple[Step, ...]

    def __str__(self) -> str:
        return on_module(self.passes)


BACKEND_TYPES = "backend-types"
"""The name of the stage after which no operation or type of torch is legal, in every output type."""


def backend_types(*passes: Step) -> Stage:
    """Return the stage `BACKEND_TYPES` with ``passes``."""
    return Stage(BACKEND_TYPES, "Functions take and return builtin tensors; no torch ops or types are left.", passes)


def control_flow(description: str, *steps: RewriteStep) -> Stage:
    """Return the stage ``control-flow``. It is separate so that MLIR's own tools can run the conversion after it."""
    return Stage("control-flow", description, steps)


def on_functions(*names: str | Pass) -> Nested:
    """Return the passes, or names of passes, nested on ``func.func``."""
    return Nested("func.func", tuple(Pass(name) if isinstance(name, str) else name for name in names))


def on_module(steps: Sequence[Step]) -> str:
    """Return the text of ``steps`` on ``builtin.module``."""
    return f"builtin.module({','.join(map(str, steps))})"

"""A pass pipeline as a value. ``str()`` of any of these is MLIR's own pass-pipeline syntax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Option = bool | int | str | Sequence[str]


@dataclass(frozen=True)
class Pass:
    """One pass, or a pipeline that MLIR registers under a name: ``cse``, ``convert-torch-to-linalg{…}``."""

    name: str
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        given = " ".join(f"{key}={_text(value)}" for key, value in self.options.items())
        return f"{self.name}{{{given}}}" if given else self.name


@dataclass(frozen=True)
class Nested:
    """Passes that run on each operation called ``anchor`` right below: ``func.func(cse,canonicalize)``."""

    anchor: str
    passes: tuple[Pass | Nested, ...]

    def __str__(self) -> str:
        return f"{self.anchor}({','.join(map(str, self.passes))})"


@dataclass(frozen=True)
class Stage:
    """A step of a pipeline that people speak of: it is timed, named in errors, and can be reproduced on its own."""

    name: str
    description: str
    """What the module is after the stage, in one sentence."""
    passes: tuple[Pass | Nested, ...]

    def __str__(self) -> str:
        return str(Nested("builtin.module", self.passes))


@dataclass(frozen=True)
class Pipeline:
    """Stages in order. No two share a name."""

    name: str
    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        return str(Nested("builtin.module", tuple(step for stage in self.stages for step in stage.passes)))


BACKEND_TYPES = "backend-types"
"""The name of the stage after which nothing of torch may be left, whatever the backend."""


def backend_types(*passes: Pass | Nested) -> Stage:
    """Return the stage of that name, made of ``passes``."""
    return Stage(BACKEND_TYPES, "Functions take and return builtin tensors; nothing of torch is left.", passes)


def on_functions(*names: str | Pass) -> Nested:
    """Return the passes, given by name or whole, to be run on every function."""
    return Nested("func.func", tuple(Pass(each) if isinstance(each, str) else each for each in names))


def _text(value: Option) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, str)) else ",".join(value)

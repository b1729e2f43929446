"""What pipelines are made of, as values. ``str()`` of any of these is MLIR's own pass-pipeline syntax.

A `RewriteStep` stands in it under a name that MLIR does not know; `fx_importer.pipelines.pipeline_parser` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fx_importer.mlir.bindings import ir

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
class RewriteStep:
    """A rewrite in Python. It stands at the top of a pipeline only: ``builtin.module(cse,tosa-isolate-regions)``."""

    name: str
    run: Callable[[ir.Operation], None]
    """Changes the module in place. What it cannot do it reports as an error at a location of the module."""

    def __str__(self) -> str:
        return self.name


Step = Pass | Nested | RewriteStep


@dataclass(frozen=True)
class Stage:
    """A step of a pipeline that people speak of: it is timed, named in errors, and can be reproduced on its own."""

    name: str
    description: str
    """What the module is after the stage, in one sentence."""
    passes: tuple[Step, ...]

    def __str__(self) -> str:
        return on_module(self.passes)


BACKEND_TYPES = "backend-types"
"""The name of the stage after which nothing of torch may be left, whatever the backend."""


def backend_types(*passes: Step) -> Stage:
    """Return the stage of that name, made of ``passes``."""
    return Stage(BACKEND_TYPES, "Functions take and return builtin tensors; nothing of torch is left.", passes)


def control_flow(description: str, *steps: RewriteStep) -> Stage:
    """Return the stage of that name. It stands alone: so MLIR's own tools can repeat the conversion that follows."""
    return Stage("control-flow", description, steps)


def on_functions(*names: str | Pass) -> Nested:
    """Return the passes, given by name or whole, to be run on every function."""
    return Nested("func.func", tuple(Pass(each) if isinstance(each, str) else each for each in names))


def on_module(steps: Sequence[Step]) -> str:
    """Return the text of ``steps``, to be run on a module."""
    return f"builtin.module({','.join(map(str, steps))})"


def _text(value: Option) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, str)) else ",".join(value)

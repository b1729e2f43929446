"""The frozen `Pipeline`, and the methods that derive one from another."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fx_importer.diagnostics.html import folded
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir, new_context, passmanager
from fx_importer.pipelines.pipeline_parser import is_known, parse_steps
from fx_importer.pipelines.python_passes import PythonPass, description_of, function_step, name_of
from fx_importer.pipelines.stage import Nested, Pass, RewriteStep, Stage, Step, on_module

Insertable = Callable[[ir.Operation], None] | str | Step | Stage
"""Anything that can become a stage: a function that changes a module in place, the name of a pass, a pipeline in MLIR's
syntax, a step, or a stage."""


@dataclass(frozen=True)
class Pipeline:
    """Stages in order, with unique names."""

    name: str
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        """Raise `UsageError` if two stages have the same name."""
        names = [stage.name for stage in self.stages]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"pipeline '{self.name}' has two stages called {', '.join(map(repr, twice))}")

    @classmethod
    def of(cls, name: str, *steps: Insertable) -> Pipeline:
        """Return a pipeline with a stage for each of ``steps``. Raises as `before` does."""
        pipeline = cls(name, ())
        for step in steps:
            pipeline = pipeline._spliced(len(pipeline.stages), 0, step, None)
        return pipeline

    def before(self, stage: str, step: Insertable, *, name: str | None = None) -> Pipeline:
        """Return the pipeline with ``step`` as a new stage right before ``stage``.

        By default it is named after the function, the passes or the stage, with a number if that name is taken.

        Raises:
            UsageError: if the stage does not exist, the name is taken, or ``step`` is not a pass.
        """
        return self._spliced(self._position(stage), 0, step, name)

    def after(self, stage: str, step: Insertable, *, name: str | None = None) -> Pipeline:
        """Return the pipeline with ``step`` as a new stage right after ``stage``. See `before`."""
        return self._spliced(self._position(stage) + 1, 0, step, name)

    def replacing(self, stage: str, step: Insertable, *, name: str | None = None) -> Pipeline:
        """Return the pipeline with ``step`` in place of ``stage``. See `before`."""
        return self._spliced(self._position(stage), 1, step, name)

    def without_stage(self, *names: str) -> Pipeline:
        """Return the pipeline without the stages of these names. Raises `UsageError` for an unknown name."""
        left_out = {self._position(name) for name in names}
        return replace(self, stages=tuple(stage for i, stage in enumerate(self.stages) if i not in left_out))

    def without_passes(self, *names: str) -> Pipeline:
        """Return the pipeline without the passes of these names at the top level of stages."""

        def stays(step: Step) -> bool:
            return not isinstance(step, Pass) or step.name not in names

        return replace(
            self, stages=tuple(replace(stage, passes=tuple(filter(stays, stage.passes))) for stage in self.stages)
        )

    def has(self, stage: str) -> bool:
        """Whether a stage is called ``stage``."""
        return any(item.name == stage for item in self.stages)

    def _position(self, stage: str) -> int:
        for position, item in enumerate(self.stages):
            if item.name == stage:
                return position
        there = ", ".join(item.name for item in self.stages) or "none"
        raise UsageError(f"pipeline '{self.name}' has no stage {stage!r}; its stages are: {there}")

    def _spliced(self, position: int, leaving_out: int, step: Insertable, name: str | None) -> Pipeline:
        others = (*self.stages[:position], *self.stages[position + leaving_out :])
        names = {other.name for other in others}
        new = as_stage(step)
        if name is not None:
            new = replace(new, name=name)
        elif not isinstance(step, Stage):
            numbered = (f"{new.name}-{number}" for number in itertools.count(2))
            new = replace(
                new,
                name=next(candidate for candidate in itertools.chain([new.name], numbered) if candidate not in names),
            )
        if new.name in names:
            raise UsageError(f"pipeline '{self.name}' has a stage '{new.name}' already: pass another name=")
        return replace(self, stages=(*others[:position], new, *others[position:]))

    def as_python(self, expression: Callable[[Any], str]) -> str:
        """Return the Python expression of an equal pipeline; ``expression`` writes its parts."""
        stages = [
            f"{expression(Stage)}({stage.name!r}, {stage.description!r}, {_steps_source(stage, expression)})"
            for stage in self.stages
        ]
        return f"{expression(Pipeline)}({self.name!r}, ({''.join(f'{stage}, ' for stage in stages)}))"

    def __repr__(self) -> str:
        return f"<Pipeline {self.name}: {', '.join(stage.name for stage in self.stages)}>"

    def _repr_html_(self) -> str:
        """Return the names of the stages, under which their passes open, in MLIR's syntax."""
        return folded(
            repr(self), "\n".join(f"{stage.name}: {', '.join(map(str, stage.passes))}" for stage in self.stages)
        )

    def __str__(self) -> str:
        return on_module([step for stage in self.stages for step in stage.passes])


Change = Pipeline | Callable[[Pipeline], Pipeline]
"""A pipeline that replaces another, or a function that derives one from another."""


def changed(pipeline: Pipeline, change: Change | None) -> Pipeline:
    """Return ``pipeline`` with ``change`` applied. Raises `UsageError` if the result is not a pipeline."""
    made = change(pipeline) if callable(change) else change or pipeline
    if not isinstance(made, Pipeline):
        what = f"returned {type(made).__name__}" if callable(change) else f"is {type(made).__name__}"
        raise UsageError(
            f"pipeline={change!r} {what}: it is a Pipeline, or a function that takes one and returns one, such as "
            "lambda pipeline: pipeline.after('torch-backend', a_pass)"
        )
    return made


def as_stage(step: Insertable) -> Stage:
    """Return ``step`` as a stage named after it.

    Raises:
        UsageError: if it is no `Insertable`, or names an unknown pass.
    """
    if isinstance(step, Stage):
        return step
    if isinstance(step, str):
        whole = step.strip().startswith("builtin.module(")
        steps = parse_steps(step if whole else f"builtin.module({step})")
        for item in steps:
            _check_passes(item)
        name = ",".join(itertools.chain.from_iterable(map(_pass_names, steps)))
    elif isinstance(step, (Pass, Nested, RewriteStep)):
        _check_passes(step)
        steps, name = (step,), ",".join(_pass_names(step))
    elif callable(step):
        description = description_of(step)
        return Stage(name_of(step), description or f"'{name_of(step)}' has run.", (function_step(step),))
    else:
        raise UsageError(
            f"{step!r} is not a step of a pipeline: pass a function that takes the module's operation, the name "
            "of a pass, a pipeline in MLIR's syntax, a Pass, or a Stage"
        )
    return Stage(name, f"'{name}' has run.", steps)


def _steps_source(stage: Stage, expression: Callable[[Any], str]) -> str:
    """Return the Python expression of the passes of ``stage``."""
    parts: list[str] = []
    for step in stage.passes:
        if isinstance(step, RewriteStep) and isinstance(step.run, PythonPass):
            parts.append(f"{expression(function_step)}({expression(step.run.function)})")
        elif isinstance(step, RewriteStep) and not is_known(step):
            parts.append(expression(step))
        else:
            parts.append(f"*{expression(parse_steps)}({on_module([step])!r})")
    return f"({''.join(f'{part}, ' for part in parts)})"


def _pass_names(step: Step) -> list[str]:
    """Return the names of the passes in ``step``."""
    if isinstance(step, Nested):
        return [name for pass_ in step.passes for name in _pass_names(pass_)]
    return [step.name.partition("{")[0].strip()]


def _check_passes(step: Step) -> None:
    if isinstance(step, RewriteStep):
        return
    if not str(step):
        raise UsageError("a step of the pipeline is empty: name a pass")
    try:
        passmanager.PassManager.parse(on_module([step]), _context())
    except ValueError as error:
        reason = str(error).partition("\n")[0].rpartition("error: ")[2]
        raise UsageError(f"'{step}' does not name passes of MLIR: {reason}") from None


@functools.cache
def _context() -> ir.Context:
    return new_context()

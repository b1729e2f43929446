"""Observers of stages and passes, which print, dump, time or record them.

They see the compilation that was asked for, and none that diagnosis, a bisection or a fallback runs within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from fx_importer.diagnostics.trace import StageRecord, Trace
    from fx_importer.mlir.bindings import ir


class Observer:
    """Sees programs and modules before and after stages and passes. The methods of this class do nothing."""

    def before(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        """Called before a stage; ``module`` is its input if that is a module."""

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        """Called after a stage, with the resulting module; ``record.failure`` is set if it failed."""

    def before_pass(self, name: str, module: ir.Operation) -> None:
        """Called before a pass with its text in MLIR's syntax: ``func.func(canonicalize)``."""

    def after_pass(self, name: str, module: ir.Operation) -> None:
        """Called after a pass that did not fail."""

    def before_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        """Called before an FX pass, with the programs by function."""

    def after_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        """Called after an FX pass that did not fail."""


_OF_STAGES: ContextVar[tuple[Observer, ...]] = ContextVar("observers of stages", default=())
_OF_PASSES: ContextVar[tuple[Observer, ...]] = ContextVar("observers of passes", default=())


@contextmanager
def observing(*observers: Observer) -> Iterator[None]:
    """Call ``observers`` for the compilations in the body."""
    token = _OF_STAGES.set((*_OF_STAGES.get(), *observers))
    try:
        yield
    finally:
        _OF_STAGES.reset(token)


def stage_observers() -> tuple[Observer, ...]:
    """Return the observers of the stages of a compilation that begins here."""
    return _OF_STAGES.get()


def pass_observers() -> tuple[Observer, ...]:
    """Return the observers of the passes of the current stage."""
    return _OF_PASSES.get()


@contextmanager
def within_stage(observers: tuple[Observer, ...]) -> Iterator[None]:
    """Call ``observers`` for the passes in the body, and nobody for compilations in it."""
    passes, stages = _OF_PASSES.set(observers), _OF_STAGES.set(())
    try:
        yield
    finally:
        _OF_PASSES.reset(passes)
        _OF_STAGES.reset(stages)

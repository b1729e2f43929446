"""The record of eager PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_importer.engines.engine import BackendOptions, Engine

if TYPE_CHECKING:
    from fx_importer.calls.backend import Backend


def _create(options: BackendOptions) -> Backend:
    from fx_importer.engines.eager.eager_backend import EagerBackend

    assert options.manifest is not None
    return EagerBackend(options.programs, options.manifest)


EAGER_ENGINE = Engine(name="eager", create=_create, runs_programs=True)
"""Eager PyTorch, which runs the exported programs: the reference for the other engines."""

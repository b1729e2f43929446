"""The lowered program to verify, and the inputs of its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.export import ExportedProgram

from fx_importer.manifest import Manifest
from fx_importer.mlir.bindings import ir
from fx_importer.options import Options
from fx_importer.verification.original_model import OriginalModel


class Subject(Protocol):
    """Protocol of the lowered program to verify; `Lowered` implements it."""

    @property
    def exported(self) -> Mapping[str, ExportedProgram]: ...
    @property
    def computed(self) -> Mapping[str, ExportedProgram]: ...
    @property
    def programs(self) -> Mapping[str, ExportedProgram]: ...
    @property
    def linked(self) -> ir.Module: ...
    @property
    def manifest(self) -> Manifest: ...
    @property
    def options(self) -> Options: ...
    @property
    def stubs(self) -> Mapping[str, Callable[..., Any]]: ...
    @property
    def originals(self) -> Mapping[str, OriginalModel]: ...
    def initial_state(self) -> dict[str, torch.Tensor]: ...


@dataclass(frozen=True)
class Inputs:
    """Inputs of a function."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    function: str | None = None
    """Name of the function; None if there is only one."""


Named = list[tuple[str, Any]]
"""Results by name."""

"""The record of an engine: everything that other packages ask about it.

Records import neither torch nor MLIR, so that `fx_importer.doctor` can list the engines of a broken installation.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fx_importer.output_types import OutputType
from fx_importer.process import optional_packages

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from torch.export import ExportedProgram

    from fx_importer.calls.backend import Backend
    from fx_importer.engines.compiled_program import CompiledProgram
    from fx_importer.manifest import Manifest
    from fx_importer.mlir.bindings import ir
    from fx_importer.pipelines import Pipeline


@dataclass(frozen=True)
class BackendOptions:
    """Inputs of a backend other than modules. Each engine reads the options that it uses."""

    stubs: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, "Callable[..., Any]"], hash=False)
    """Python functions to call for operator stubs, by the names of the operators."""
    cache: bool | None = None
    """Whether compiled code is cached; by default if ``FX_IMPORTER_CACHE_DIR`` is set."""
    programs: Mapping[str, ExportedProgram] = field(default_factory=dict[str, "ExportedProgram"], hash=False)
    """The exported programs of the functions of the module."""
    manifest: Manifest | None = None
    device: str = "cpu"
    """The device to run on: the name of a platform in `Engine.devices`, with or without an index."""


@dataclass(frozen=True)
class LanguageModels:
    """How `fx_importer.llm` writes models for an engine."""

    sum_lanes: int = 1
    """The number of partial sums into which sums over int8 weights are split."""
    fuses_sums: bool = True
    """Whether its compiler vectorizes sums of products: attention of one token is written as such sums then."""


@dataclass(frozen=True)
class AheadOfTime:
    """Compilation to a file, for ``Lowered.compile`` and ``fx-importer compile``."""

    suffixes: Mapping[str, str]
    """The suffix of the file by kind, the default kind first."""
    compile: Callable[[ir.Module, str, Mapping[str, str], str], CompiledProgram]
    """Compile a module for a target, by name, to a kind of file.

    Weights named in the mapping stay parameters of the compiled program.
    """


@dataclass(frozen=True)
class WeightFiles:
    """A file format of weights, which `fx_importer.weights` reads and writes with the packages of the engine."""

    suffix: str
    description: str
    read: Callable[[Path], Mapping[str, tuple[int, int]]]
    """Return the offset and the size in bytes of each tensor. Raises any exception for a damaged file."""
    write: Callable[[Mapping[str, np.ndarray[Any, Any]], Path], None]
    """Write the bytes of tensors."""


@dataclass(frozen=True)
class Engine:
    """An engine that runs lowered modules. Functions import its packages, and its own modules, when they are called."""

    name: str
    """The name that users pass: ``backend="jit"``, ``--engine iree``."""
    create: Callable[[BackendOptions], Backend]
    """Return the backend, which loads modules. Raises `UsageError` if `BackendOptions.device` is not there."""
    accepts: tuple[OutputType, ...] = ()
    """The output types that it runs, best first."""
    default_for: tuple[OutputType, ...] = ()
    """The output types that `Lowered.run` runs on this engine."""
    pipeline: Callable[[OutputType], Pipeline] | None = None
    """Return the passes between a module of an output type and the compiler of the engine, on the CPU of this machine.

    None for engines that take modules as they are.
    """
    extra: str | None = None
    """The extra of this package that brings `packages`."""
    packages: tuple[str, ...] = ()
    """The packages that it needs, by import name."""
    devices: tuple[str, ...] = ("cpu",)
    """The platforms whose devices it runs on, with PyTorch's tensors there: those of ``caller(device="cuda:1")``."""
    isolated: bool = False
    """Whether every call runs in a new process. Interpreters do: they are slow, and may crash."""
    runs_stubs: bool = False
    """Whether it calls operators of this process: operator stubs, and modules with several output types."""
    runs_programs: bool = False
    """Whether it runs exported programs and not modules, as the reference that modules are compared with."""
    benchmarked: tuple[OutputType, ...] = ()
    """The output types that ``fx-importer bench`` measures by default; none for interpreters."""
    variants: Mapping[str, Callable[[], Backend]] = field(
        default_factory=dict[str, "Callable[[], Backend]"], hash=False
    )
    """Other configurations that ``mode="max-autotune"`` tries, by a name for the log."""
    language_models: LanguageModels | None = None
    """None for engines that `fx_importer.llm` does not run on."""
    load_on_mesh: Callable[[ir.Module, str], Any] | None = None
    """Load a function for the ranks of a mesh. None for engines that run on one device."""
    ahead_of_time: AheadOfTime | None = None
    weight_files: WeightFiles | None = None

    def check_installed(self) -> None:
        """Raise `NotInstalledError` with the extra unless all `packages` are installed."""
        optional_packages.require(self.name, self.extra or "", *self.packages)

    def imported(self, package: str) -> ModuleType:
        """Return a package that the extra brings. Raises `NotInstalledError` if it is not installed."""
        optional_packages.require(self.name, self.extra or "", package)
        return importlib.import_module(package)

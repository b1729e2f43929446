"""The table of engines. A new engine in this package is a folder with a record, and a line here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fx_importer.engines.eager.engine import EAGER_ENGINE
from fx_importer.engines.engine import AheadOfTime, BackendOptions, Engine, LanguageModels
from fx_importer.engines.iree.engine import IREE_ENGINE
from fx_importer.engines.jit.engine import JIT_ENGINE
from fx_importer.engines.stablehlo_interpreter.engine import STABLEHLO_INTERPRETER_ENGINE
from fx_importer.engines.tosa_reference.engine import TOSA_REFERENCE_ENGINE
from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.errors import UsageError
from fx_importer.output_types import OutputType

if TYPE_CHECKING:
    from fx_importer.calls.backend import Backend
    from fx_importer.mlir.bindings import ir

BUILT_IN = (
    JIT_ENGINE,
    STABLEHLO_INTERPRETER_ENGINE,
    TOSA_REFERENCE_ENGINE,
    IREE_ENGINE,
    XLA_ENGINE,
    EAGER_ENGINE,
)
DEFAULT_ENGINE = JIT_ENGINE.name
"""The engine of language models, and of graphs of `torch.compile`: the fastest on average on CPUs (docs/engines.md),
and always installed."""
REFERENCE_ENGINE = EAGER_ENGINE.name
"""The engine that others are compared with."""
GROUP = "fx_importer.engines"
"""Entry point group of third-party engines. Each entry point is an `Engine`."""


@functools.cache
def all_engines() -> Mapping[str, Engine]:
    """Return all engines by name: built-in ones, then third-party ones by their entry points.

    Raises:
        UsageError: for an entry point that is not an `Engine`, or whose name is taken.
    """
    table = {engine.name: engine for engine in BUILT_IN}
    for point in entry_points(group=GROUP):
        engine = point.load()
        if not isinstance(engine, Engine):
            raise UsageError(f"the entry point '{point.name}' of {GROUP} is not an Engine: {engine!r}")
        if table.setdefault(engine.name, engine) is not engine:
            raise UsageError(f"two engines have the name '{engine.name}': one is the entry point {point.value}")
    return MappingProxyType(table)


def module_engines() -> tuple[Engine, ...]:
    """Return the engines that run modules, and not only exported programs."""
    return tuple(engine for engine in all_engines().values() if not engine.runs_programs)


def program_engines() -> tuple[Engine, ...]:
    """Return the engines that run the exported programs."""
    return tuple(engine for engine in all_engines().values() if engine.runs_programs)


def engine_named(name: str) -> Engine:
    """Return the engine ``name``. Raises `UsageError` with the accepted names."""
    if name not in all_engines():
        accepted = ", ".join(repr(engine.name) for engine in module_engines())
        programs = ", ".join(repr(engine.name) for engine in program_engines())
        raise UsageError(f"unknown backend {name!r}: accepted are {accepted}, and {programs}")
    return all_engines()[name]


def engine_of(backend: object) -> Engine | None:
    """Return the engine of a backend, or of its name; None for a backend that is not of an engine in the table."""
    name = backend if isinstance(backend, str) else getattr(backend, "name", None)
    return all_engines().get(name) if isinstance(name, str) else None


def engines_for(output_type: OutputType) -> tuple[Engine, ...]:
    """Return the engines that run ``output_type``, the default one first. A derived type runs like its base."""
    runs = [engine for engine in module_engines() if output_type.root in engine.accepts]
    return tuple(sorted(runs, key=lambda engine: output_type.root not in engine.default_for))


def default_engine(output_type: OutputType) -> Engine | None:
    """Return the engine that runs ``output_type`` by default; None if there is none."""
    return next((engine for engine in engines_for(output_type) if output_type.root in engine.default_for), None)


def stub_engine() -> Engine:
    """Return the engine that runs operator stubs, and modules with several output types."""
    return next(engine for engine in all_engines().values() if engine.runs_stubs)


def language_model_engines() -> Mapping[str, LanguageModels]:
    """Return how language models are written for the engines that run them, by name."""
    return {engine.name: engine.language_models for engine in module_engines() if engine.language_models is not None}


def language_model_engine(output_type: OutputType) -> str:
    """Return the name of the engine that language models in ``output_type`` are written for by default."""
    return _best(output_type, [all_engines()[name] for name in language_model_engines()]).name


def mesh_loaders() -> Mapping[str, Callable[[ir.Module, str], Any]]:
    """Return the loaders of engines that run the program of each rank of a mesh, the default engine first."""
    loaders = {engine: engine.load_on_mesh for engine in module_engines() if engine.load_on_mesh is not None}
    best = _best(OutputType.STABLEHLO, list(loaders))
    return {best.name: loaders[best], **{engine.name: load for engine, load in loaders.items()}}


def ahead_of_time() -> AheadOfTime:
    """Return the compilation to files of the engine that has one."""
    return next(engine.ahead_of_time for engine in module_engines() if engine.ahead_of_time is not None)


def _best(output_type: OutputType, engines: Sequence[Engine]) -> Engine:
    """Return the first engine that runs ``output_type`` best of all; the first of all if there is none."""
    return next((engine for engine in engines if engine.accepts[0] is output_type.root), engines[0])


def backend_named(
    name: str, stubs: Mapping[str, Callable[..., Any]] = MappingProxyType({}), cache: bool | None = None
) -> Backend:
    """Return the backend ``name``, which runs modules. Raises `UsageError` with the accepted names.

    ``stubs`` are functions to call in place of operators, by name, for operator stubs. ``cache`` is
    `BackendOptions.cache`.
    """
    engine = engine_named(name)
    if engine.runs_programs:
        raise UsageError(f"the backend {name!r} runs exported programs, and not modules")
    return engine.create(BackendOptions(stubs, cache))

"""Engines that run a model. They are picklable, since each runs in its own process.

A process imports only the dependencies of its engine, because its memory is compared with other engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_importer.benchmarking.rivals import onnx_runtime, onnx_runtime_is_there, openvino, openvino_is_there
from fx_importer.engines import engine_named
from fx_importer.engines.device_names import CPU, torch_device_named
from fx_importer.engines.engine_table import REFERENCE_ENGINE, module_engines
from fx_importer.errors import UsageError
from fx_importer.options import Options
from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class Example:
    """A model, or an exported program, with example inputs."""

    model: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def function(self) -> Callable[..., Any]:
        """The model as a function of its inputs."""
        return self.model.module(check_guards=False) if isinstance(self.model, ExportedProgram) else self.model


Prepare = Callable[[Example], Callable[..., Any]]
"""Return a function of the model's inputs. It may compile on its first call."""


@dataclass(frozen=True)
class Candidate:
    """Something that runs a model: eager PyTorch, Inductor, or an engine with an output type."""

    name: str
    prepare: Prepare
    check: Callable[[], None]
    """Raises `UsageError` if the engine is not installed, and names the package to install."""
    output_type: OutputType | None = None
    """The output type that it runs; None if it takes the model itself."""


def _nothing() -> None:
    pass


def _eager(example: Example) -> Callable[..., Any]:
    return example.function


def _inductor(example: Example) -> Callable[..., Any]:
    from torch._inductor import config

    config.force_disable_caches = True  # measure compile times without a warm cache
    return torch.compile(example.function)


def _compiler_is_there() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise UsageError("Inductor needs a C++ compiler, and there is none: install g++, or set CXX") from None


EAGER = Candidate(REFERENCE_ENGINE, _eager, _nothing)
INDUCTOR = Candidate("inductor", _inductor, _compiler_is_there)
ONNX_RUNTIME = Candidate("onnxruntime", onnx_runtime, onnx_runtime_is_there)
OPENVINO = Candidate("openvino", openvino, openvino_is_there)
RIVALS = {candidate.name: candidate for candidate in (INDUCTOR, ONNX_RUNTIME, OPENVINO)}
"""Candidates that run the model without a lowering, by name."""


def _lowered(backend: str, options: Options, device: str, example: Example) -> Callable[..., Any]:
    from fx_importer.compiler.compile_programs import compile_programs
    from fx_importer.importing import FxImporter

    call = (example.model, tuple(example.args), dict(example.kwargs))
    lowered = compile_programs({options.importing.func_name: call}, FxImporter(), options)
    return lowered.caller(backend=backend, device=device)


def lowered_engine(
    backend: str,
    output_type: OutputType,
    options: Options = Options(),  # noqa: B008 - it is frozen
    device: str = CPU,
) -> Candidate:
    """Return the engine that lowers to ``output_type`` with ``options`` and runs the result on ``backend``."""
    prepare = partial(_lowered, backend, replace(options, output_type=output_type), device)
    return Candidate(f"{backend}:{output_type.value}", prepare, engine_named(backend).check_installed, output_type)


def chosen_engines(
    names: Sequence[str] = (),
    output_types: Sequence[OutputType] = (),
    options: Options = Options(),  # noqa: B008 - it is frozen
    device: str = CPU,
) -> list[Candidate]:
    """Return eager PyTorch, and the rivals and engines in ``names``, for ``output_types`` or their own defaults.

    Without names, all of them that run on ``device`` are returned.

    Raises:
        UsageError: for an unknown name, if no engine takes any of ``output_types``, or if ``device`` is not there.
    """
    platform = device.partition(":")[0]
    measured = [engine for engine in module_engines() if engine.benchmarked and platform in engine.devices]
    rivals = {name: rival for name, rival in RIVALS.items() if device == CPU or rival is INDUCTOR}
    accepted = (*rivals, *(engine.name for engine in measured))
    if unknown := [name for name in names if name not in (*accepted, EAGER.name)]:
        where = "" if device == CPU else f" on '{device}'"
        raise UsageError(f"unknown engine {', '.join(map(repr, unknown))}{where}: accepted are {', '.join(accepted)}")
    torch_device_named(device)
    candidates = [EAGER, *(rival for name, rival in rivals.items() if name in (names or accepted))]
    engines = [engine for engine in measured if engine.name in (names or accepted)]
    pairs = [(engine, kind) for engine in engines for kind in output_types or engine.benchmarked]
    pairs = [(engine, kind) for engine, kind in pairs if kind.root in engine.accepts]
    if output_types and not pairs:
        kinds = " or ".join(kind.value for kind in output_types)
        tried = ", ".join(engine.name for engine in engines)
        raise UsageError(f"no engine of {tried or 'these'} takes {kinds}")
    return [*candidates, *(lowered_engine(engine.name, kind, options, device) for engine, kind in pairs)]


def effort_to_install(name: str) -> int:
    """Rank the candidate ``name`` by its requirements: none, a C++ compiler, or a package."""
    if name == EAGER.name:
        return 0
    if name in RIVALS:
        return 2 if name == INDUCTOR.name else 3
    return 3 if engine_named(name.partition(":")[0]).extra else 1

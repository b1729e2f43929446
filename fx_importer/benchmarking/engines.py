"""Engines that run a model. They are picklable, since each runs in a process of its own.

A process imports what its engine needs only, since its memory is compared with that of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

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
        return self.model.module() if isinstance(self.model, ExportedProgram) else self.model


Prepare = Callable[[Example], Callable[..., Any]]
"""Return a function of the model's inputs. It may compile on its first call."""


@dataclass(frozen=True)
class Engine:
    """Something that runs a model."""

    name: str
    prepare: Prepare
    check: Callable[[], None]
    """Raises `UsageError` if the engine is not installed, with what to install."""
    output_type: OutputType | None = None
    """What it runs; None if it takes the model itself."""


def _nothing() -> None:
    pass


def _eager(example: Example) -> Callable[..., Any]:
    return example.function


def _inductor(example: Example) -> Callable[..., Any]:
    from torch._inductor import config

    config.force_disable_caches = True  # compile times are those of a new model
    return torch.compile(example.function)


def _compiler_is_there() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise UsageError("Inductor needs a C++ compiler, and there is none: install g++, or set CXX") from None


EAGER = Engine("eager", _eager, _nothing)
INDUCTOR = Engine("inductor", _inductor, _compiler_is_there)


def _lowered(backend: str, options: Options, example: Example) -> Callable[..., Any]:
    from fx_importer.api.lowered import Lowered
    from fx_importer.compiler.driver import compile_programs
    from fx_importer.engines import backend_named
    from fx_importer.importing import FxImporter

    call = (example.model, tuple(example.args), dict(example.kwargs))
    lowered = Lowered.of(compile_programs({options.importing.func_name: call}, FxImporter(), options))
    return lowered.caller(backend=backend_named(backend, lowered.stubs))


def _installed(backend: str) -> None:
    from fx_importer.process.optional_packages import check_installed

    check_installed(backend)


def lowered_engine(backend: str, output_type: OutputType, options: Options = Options()) -> Engine:  # noqa: B008 - it is frozen
    """Return the engine that lowers to ``output_type``, otherwise with ``options``, and runs that on ``backend``."""
    prepare = partial(_lowered, backend, replace(options, output_type=output_type))
    return Engine(f"{backend}:{output_type.value}", prepare, partial(_installed, backend), output_type)


DEFAULT_OUTPUT_TYPES = {
    "jit": (OutputType.LINALG_ON_TENSORS,),
    "iree": (OutputType.LINALG_ON_TENSORS, OutputType.STABLEHLO, OutputType.TORCH),
    "xla": (OutputType.STABLEHLO,),
}
"""The backends that compile, with the output types that are measured by default: others take longer ways."""
NAMES = (INDUCTOR.name, *DEFAULT_OUTPUT_TYPES)


def chosen_engines(
    names: Sequence[str] = (),
    output_types: Sequence[OutputType] = (),
    options: Options = Options(),  # noqa: B008 - it is frozen
) -> list[Engine]:
    """Return eager PyTorch and the engines of ``names``: by default all, with their default output types.

    Raises:
        UsageError: for an unknown name, or if none of the engines takes any of ``output_types``.
    """
    if unknown := [each for each in names if each not in (*NAMES, EAGER.name)]:
        raise UsageError(f"unknown engine {', '.join(map(repr, unknown))}: accepted are {', '.join(NAMES)}")
    from fx_importer.targets import target_for

    found = [EAGER]
    if INDUCTOR.name in (names or NAMES):
        found.append(INDUCTOR)
    backends = [each for each in DEFAULT_OUTPUT_TYPES if each in (names or NAMES)]
    pairs = [(each, kind) for each in backends for kind in output_types or DEFAULT_OUTPUT_TYPES[each]]
    taken = [(each, kind) for each, kind in pairs if each in target_for(kind).backends]
    if output_types and not taken:
        kinds = " or ".join(each.value for each in output_types)
        raise UsageError(f"no engine of {', '.join(backends) or 'these'} takes {kinds}")
    return [*found, *(lowered_engine(each, kind, options) for each, kind in taken)]

"""``mode="max-autotune"``: the engine of a graph is the fastest of several on the arguments of the first call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_importer.api.keywords import options_of
from fx_importer.calls.backend import Backend, Loaded
from fx_importer.compiler.compile_programs import compile_programs
from fx_importer.dynamo.backend_options import GraphOptions, output_type_for
from fx_importer.engines import Engine
from fx_importer.engines.device_names import CPU
from fx_importer.engines.engine_table import module_engines
from fx_importer.errors import FxImporterError
from fx_importer.importing import FxImporter
from fx_importer.options import Options, PrintOptions
from fx_importer.results.lowered import Lowered

_LOG = logging.getLogger(__name__)
_ROUNDS = range(3, 30)
_SECONDS = 0.5
"""Each engine is called at least three times, and then at most 29 times, as long as all together take half a second."""


class FastestFunction:
    """A function on the engine that is fastest on the arguments of the first call.

    Args:
        engine: the name of the default engine.
        function: the function on it.
        others: compile the function on other engines, by name. One that raises an `FxImporterError` is left out.
    """

    def __init__(self, engine: str, function: Loaded, others: Mapping[str, Callable[[], Loaded]]):
        self._engine, self._function, self._others = engine, function, others
        self.kept: str | None = None
        """The name of the engine that was kept, after the first call."""

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        if self.kept is None:
            self._choose(arguments)
        return self._function(*arguments)

    def _choose(self, arguments: Sequence[Any]) -> None:
        self._function(*arguments)  # an error of the program itself is raised here
        functions = {self._engine: self._function}
        for name, load in self._others.items():
            try:
                functions[name] = load()
                functions[name](*arguments)
            except FxImporterError as error:
                functions.pop(name, None)
                _LOG.info("max-autotune: without %s: %s", name, str(error).splitlines()[0])
        seconds = _least_seconds(functions, arguments)
        self.kept = min(seconds, key=seconds.__getitem__)
        self._function, self._others = functions[self.kept], {}
        times = ", ".join(f"{name} {1e3 * least:.3g} ms" for name, least in seconds.items())
        _LOG.info("max-autotune: a graph of %d inputs runs on %s: %s", len(arguments), self.kept, times)


def _least_seconds(functions: Mapping[str, Loaded], arguments: Sequence[Any]) -> dict[str, float]:
    """Return the least time of a call of each function; they take turns."""
    seconds = dict.fromkeys(functions, float("inf"))
    begin = time.perf_counter()
    for number in range(_ROUNDS.stop):
        if number >= _ROUNDS.start and time.perf_counter() - begin > _SECONDS:
            break
        for name, function in functions.items():
            start = time.perf_counter()
            function(*arguments)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def fastest(program: ExportedProgram, lowered: Lowered, function: Loaded, settings: GraphOptions) -> Loaded:
    """Return ``function``, which runs ``lowered`` on the engine of ``settings``, or another engine that is faster.

    Tried are the JIT at LLVM's highest level, and all other engines of this process that are installed. A program with
    effects runs once in each call, and so on the given engine.
    """
    if any(spec.kind is InputKind.TOKEN for spec in program.graph_signature.input_specs):
        return function

    def on_engine(engine: Engine) -> Loaded:
        engine.check_installed()
        kind = output_type_for(engine.name)
        # Operator stubs are for engines that call PyTorch.
        runs = kind is settings.output_type and not lowered.operator_stubs
        return _loaded(lowered if runs else lower_quietly(program, settings, kind), engine.name, settings.device)

    def on_variant(create: Callable[[], Backend]) -> Loaded:
        return _loaded(lowered, create())

    platform = settings.device.partition(":")[0]
    engines = [engine for engine in module_engines() if platform in engine.devices and not engine.isolated]
    others = {name: partial(on_variant, create) for engine in engines for name, create in engine.variants.items()}
    others |= {engine.name: partial(on_engine, engine) for engine in engines if engine.name != settings.engine}
    return FastestFunction(str(settings.engine), function, others)


def _loaded(lowered: Lowered, engine: str | Backend, device: str = CPU) -> Loaded:
    (name,) = lowered.manifest.functions
    return lowered.caller(backend=engine, device=device).unwrapped(name)


def lower_quietly(program: ExportedProgram, settings: GraphOptions, output_type: Any) -> Lowered:
    """Lower ``program`` with the options of ``settings``; failures are not reported, and nothing is printed."""
    options: Options = options_of({**settings.lowering, "output_type": output_type})
    running = replace(options.running, dump_ir=None, cache=False)
    options = replace(options, printing=PrintOptions(), running=running)
    call = {options.importing.func_name: (program, (), {})}
    return compile_programs(call, FxImporter(), options, report=False)

"""Execution of a lowered module."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fx_importer.calls.backend import Backend, Loaded, TakesWeights
from fx_importer.calls.caller import Caller
from fx_importer.calls.saturation import arguments_check
from fx_importer.diagnostics.observers import Observer, observing
from fx_importer.diagnostics.reports import Dumps
from fx_importer.engines import BackendOptions, default_engine, engine_named, engine_of
from fx_importer.engines.device_names import CPU, engine_on, torch_device_named
from fx_importer.engines.engine_table import REFERENCE_ENGINE, stub_engine
from fx_importer.errors import UsageError
from fx_importer.manifest import Manifest
from fx_importer.options import Weights
from fx_importer.output_types import OutputType
from fx_importer.results.changed_weights import check_weights
from fx_importer.targets import EXECUTABLE
from fx_importer.weights import as_passed

if TYPE_CHECKING:
    from fx_importer.results.lowered import Lowered


def caller_of(
    lowered: Lowered, state: Mapping[str, torch.Tensor] | None, backend: str | Backend | None, device: str = CPU
) -> Caller:
    """Return the functions of the module, ready to run on ``backend`` and ``device``.

    Raises:
        NotInstalledError: naming the extra that brings the backend.
        UsageError: if the backend cannot run the module, or a part of the state is missing.
    """
    check_one_device(lowered)
    check_weights(lowered.weights, lowered.module)
    if device != CPU:
        backend = engine_on(device, lowered.options.output_type, backend)
    elif backend is None:
        backend = default_backend(lowered.manifest)
    if isinstance(backend, str):
        engine = engine_named(backend)
        if engine.runs_programs:
            require_programs(lowered)
        cache = lowered.options.running.cache
        backend = engine.create(BackendOptions(lowered.stubs, cache, lowered.programs, lowered.manifest, device))
    in_place = False
    if isinstance(backend, TakesWeights) and lowered.options.importing.weights is Weights.EXTERNAL:
        in_place = not getattr(backend, "copies_weights", False)
        values, module = lowered.weight_values(), lowered.module  # nothing is compiled in
        passed = {key: as_passed(values[weight.name], weight) for key, weight in lowered.manifest.weights.items()}
        backend = backend.with_weights(passed)
    else:
        module = lowered.linked
    with observing(*_dumps(lowered, backend)):
        loaded = {name: backend.load(module, name) for name in lowered.manifest.functions}
    initial = lowered.initial_state()
    engine = engine_of(backend)
    if engine is not None and not engine.runs_programs and not in_place:
        read = [
            tensor
            for program in lowered.exported.values()
            for name, tensor in {**program.constants, **program.state_dict}.items()
            if name not in initial and isinstance(tensor, torch.Tensor) and not tensor.is_inference()
        ]
        loaded = {name: _checked(function, _same_weights(read)) for name, function in loaded.items()}
    for name, program in lowered.exported.items():
        loaded[name] = _checked(loaded[name], arguments_check(program, lowered.manifest.functions[name]))
    weights = {name: tensor for name, tensor in initial.items() if name not in lowered.manifest.state}
    begin = initial if state is None else {**weights, **state}
    if device != CPU:
        begin = {name: tensor.to(torch_device_named(device)) for name, tensor in begin.items()}
    return Caller(lowered.manifest, loaded, begin)


def _dumps(lowered: Lowered, backend: Backend) -> list[Observer]:
    """Return the observer that dumps the IR in the pipeline of the engine, if ``dump_ir`` asks for dumps."""
    engine, running = engine_of(backend), lowered.options.running
    return [] if engine is None or engine.pipeline is None or running.dump_ir is None else [Dumps(running)]


def _checked(function: Loaded, check: Callable[[Sequence[Any]], None] | None) -> Loaded:
    """Return ``function`` with ``check`` of its arguments before each call."""
    if check is None:
        return function

    def checked(call: Loaded) -> Loaded:
        def checked_call(*arguments: Any) -> tuple[Any, ...]:
            check(arguments)
            return call(*arguments)

        return checked_call

    result: Any = checked(function)
    if (keep_state := getattr(function, "keep_state", None)) is not None:
        result.keep_state = checked(keep_state)
    return result


def _same_weights(weights: Sequence[torch.Tensor]) -> Callable[[Sequence[Any]], None] | None:
    """Return a check of ``weights``, some of which a function reads in their memory, and others in copies.

    It raises `UsageError` after a change in place, by the counters that PyTorch has for autograd; ``.data`` has none.
    """
    versions = [weight._version for weight in weights]

    def check(_: Sequence[Any]) -> None:
        if [weight._version for weight in weights] != versions:
            raise UsageError(
                "weights of the model were changed in place since the backend loaded it: lower the model again, or "
                "with weights='args', which takes them in each call"
            )

    return check if weights else None


def check_one_device(lowered: Lowered) -> None:
    """Raise `UsageError` for the program of each device of a mesh: here, collectives have no other ranks."""
    sharded = lowered.options.importing.plan is not None
    if (devices := math.prod(lowered.manifest.mesh.values())) > 1 and not sharded:
        raise UsageError(
            f"the program runs on {devices} devices together, of the mesh {lowered.options.importing.mesh}: run it "
            "with Lowered.caller_on_mesh, on devices of XLA"
        )


def require_programs(lowered: Lowered) -> None:
    """Raise `UsageError` for a module that was read from a file without its programs."""
    if not lowered.exported:
        raise UsageError(
            "the module was read without its program: pass the exported program, or the .pt2 file of it, to "
            "fx_importer.load(path, program=...)"
        )


def default_backend(manifest: Manifest) -> str:
    """Return the name of the default backend of a module. Raises `UsageError` if there is none."""
    output_type = OutputType.get(manifest.output_type)
    default = default_engine(output_type)
    if default is None:
        runs = ", ".join(sorted(output_type.value for output_type in EXECUTABLE))
        raise UsageError(
            f"no backend runs {output_type.value} by itself: lower to one of {runs}, or pass "
            f"backend={REFERENCE_ENGINE!r} to run the program in PyTorch"
        )
    return (stub_engine() if manifest.operator_stubs or manifest.fallback else default).name

"""Comparison of a lowered module with PyTorch, and search for the first operation that differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fx_importer.calls.backend import Backend
from fx_importer.engines import BackendOptions, HostCalls, engine_named, engines_for
from fx_importer.engines.device_names import CPU, engine_on, torch_device_named
from fx_importer.errors import UsageError
from fx_importer.manifest import Manifest
from fx_importer.output_types import OutputType
from fx_importer.results.changed_weights import check_weights
from fx_importer.results.run import check_one_device, default_backend, require_programs
from fx_importer.targets import target_for
from fx_importer.verification import Divergence, Inputs, Tolerance, Verdict, bisect, example_inputs, verify
from fx_importer.verification.pass_bisection import WrongPass, first_wrong_pass
from fx_importer.verification.verdict import CAPTURE, Check, Status
from fx_importer.verification.verifier import named

if TYPE_CHECKING:
    from fx_importer.results.lowered import Lowered


def verify_lowered(
    lowered: Lowered,
    call: Inputs | None,
    inputs: Sequence[Inputs],
    backends: Sequence[str | Backend] | None,
    tolerance: Tolerance,
    isolate: bool,
    bisect: bool = False,
    device: str = CPU,
) -> Verdict:
    """Call the model in PyTorch and run the module on backends, and compare all results.

    With ``bisect``, also find the pass after which the numbers differ, for each backend with a mismatch.

    Raises:
        UsageError: as `Lowered.verify` does.
    """
    if call and inputs:
        raise UsageError("pass one input set as the model takes it, or several in inputs=[Inputs(...), ...]")
    _check_comparable(lowered)
    check_weights(lowered.weights, lowered.module)
    if isinstance(backends, str):
        backends = [backends]
    required = None
    if device != CPU:
        backends = [_on_device(lowered, backend, device) for backend in backends or (None,)]
    elif backends is None:
        backends = _default_backends(lowered.manifest)
        required = backends[0]
    calls = [call] if call else inputs or example_inputs(lowered.exported)
    verdict = verify(lowered, calls, backends, tolerance, isolate, required)
    if not bisect:
        return verdict
    ran = [check for check in reversed(verdict.checks) if check.backend != CAPTURE]
    wrong = {check.backend: check for check in ran if check.status is Status.MISMATCH}
    checks = (_wrong_pass(lowered, check, calls, backends, tolerance) for check in wrong.values())
    return replace(verdict, wrong_passes=tuple(check for check in checks if check is not None))


def _on_device(lowered: Lowered, backend: str | Backend | None, device: str) -> Backend:
    """Return a backend that runs on ``device``, by default the first. Raises `UsageError` if there is none."""
    name = engine_on(device, lowered.options.output_type, backend)
    options = BackendOptions(lowered.stubs, programs=lowered.programs, manifest=lowered.manifest, device=device)
    return HostCalls(engine_named(name).create(options), torch_device_named(device))


def _wrong_pass(
    lowered: Lowered, check: Check, calls: Sequence[Inputs], backends: Sequence[str | Backend], tolerance: Tolerance
) -> WrongPass | None:
    """Return the pass after which the numbers of a call that mismatches differ; None if it is not found."""
    backend = next(backend for backend in backends if check.backend in (backend, getattr(backend, "name", None)))
    inputs = [call for call in calls if named(call, lowered.exported).function == check.function][check.inputs]
    return first_wrong_pass(
        lowered,
        lambda module: replace(lowered, module=module),
        lambda trace: lowered.recompile(dict(lowered.exported), (), None, trace),
        target_for(lowered.options.output_type).pipeline(lowered.options.lowering),
        inputs,
        backend,
        tolerance,
    )


def bisect_lowered(
    lowered: Lowered,
    call: Inputs | None,
    inputs: Inputs | None,
    backend: str | Backend | None,
    tolerance: Tolerance,
    isolate: bool,
    device: str = CPU,
) -> Divergence | None:
    """Find the first operation of the exported program whose value differs on ``backend``.

    Raises:
        UsageError: as `Lowered.bisect` does.
    """
    if call and inputs:
        raise UsageError("pass inputs as the model takes them, or inputs=Inputs(...)")
    _check_comparable(lowered)
    chosen = inputs or call or example_inputs(lowered.exported)[0]
    if device != CPU:
        backend = _on_device(lowered, backend, device)
    elif backend is None:
        backend = default_backend(lowered.manifest)
    return bisect(lowered, lowered.recompile, chosen, backend, tolerance, isolate)


def _check_comparable(lowered: Lowered) -> None:
    """Raise `UsageError` for a program of a mesh, or without its exported programs or values of its weights."""
    check_one_device(lowered)
    require_programs(lowered)
    lowered.weight_values()


def _default_backends(manifest: Manifest) -> tuple[str, ...]:
    """Return the backends that run a module, the default one first. Raises `UsageError` if there is none."""
    if manifest.operator_stubs or manifest.fallback:
        return (default_backend(manifest),)
    engines = engines_for(OutputType.get(manifest.output_type))
    return tuple(engine.name for engine in engines) or (default_backend(manifest),)


def inputs_given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Inputs | None:
    """Return the inputs of a call as an input set; None if there are none."""
    return Inputs(args, kwargs) if args or kwargs else None

"""Backend that runs StableHLO with XLA, from the packages ``jax`` and ``jaxlib``, on devices of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from fx_importer.calls.backend import Loaded, Value
from fx_importer.calls.call_signature import Signature, TensorKind, read_signature
from fx_importer.calls.dense_arguments import DenseArguments
from fx_importer.calls.specialization import Specialized, is_dynamic
from fx_importer.calls.state import OnDevice
from fx_importer.diagnostics.trace import Trace
from fx_importer.distributed.module_attributes import mesh_of
from fx_importer.distributed.shardings import is_sharded
from fx_importer.engines.engine_pipeline import run_engine_pipeline
from fx_importer.engines.function_extraction import check_dialects, extract_function
from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.engines.xla.xla_devices import HOST, Placement, placement_of, whole_array
from fx_importer.engines.xla.xla_pipeline import xla_pipeline
from fx_importer.engines.xla.xla_placed_weights import PlacedWeight
from fx_importer.engines.xla.xla_processes import among_processes
from fx_importer.engines.xla.xla_program import XLA, as_array, as_tensor, compile_program, passed_as_array, put
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.constant_arguments import take_resources
from fx_importer.mlir.functions import functions_of
from fx_importer.rewrites.xla.weight_preparation import split_preparation


@dataclass(frozen=True)
class XlaBackend:
    """XLA. A program with a plan runs on as many devices of the host as its mesh has."""

    name: str = "xla"
    platform: str = HOST
    """jax's name of the platform: ``"cpu"``, or that of a plug-in, such as ``"cuda"``. Its first device runs it."""

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Compile the function ``func_name`` of ``module``, which does not change, from a portable artifact.

        Weights become arguments: an artifact has no ``dense_resource``. With dynamic sizes, a static specialization is
        compiled for each set of sizes.

        Raises:
            NotInstalledError: without ``jax`` and ``jaxlib``.
            UsageError: if no function has that name, or it takes or returns anything but tensors, or
                has operations of other dialects; if jax does not have the platform, or a program with a plan is for
                another than the host.
            StageFailed: if the module cannot be serialized to an artifact, or XLA cannot compile it.
        """
        XLA_ENGINE.check_installed()
        copy, function = extract_function(module, func_name)
        signature = read_signature(function, XLA)
        check_dialects(copy, ("builtin", "func", "stablehlo"), XLA)
        jax = XLA_ENGINE.imported("jax")
        mesh = mesh_of(module) if is_sharded(module) else None
        if mesh is not None and self.platform != HOST:
            raise UsageError(f"a program with a plan runs on devices of the host, not on '{self.platform}'")
        places = placement_of(copy, mesh, len(signature.arguments), len(signature.results), self.platform)
        whole = places.whole
        with Trace().stage("constants"):
            weights = [put(jax, whole, each) for each in take_resources(function, "stablehlo.constant", XLA.dtypes)]
        prepared: dict[str, Sequence[Any]] = {}

        def compiled(module: ir.Module, static: Signature) -> _Function:
            run_engine_pipeline(xla_pipeline(self.platform, places.devices), module)
            preparation = split_preparation(functions_of(module)["main"], len(signature.arguments), XLA.dtypes)
            kept = weights
            if preparation is not None:
                text = str(preparation)  # specializations for other sizes prepare the weights alike
                if text not in prepared:
                    with jax.enable_x64(True):
                        made = len(read_signature(functions_of(preparation)["main"], XLA).results)
                        compiled = compile_program(preparation, [whole] * len(weights), [whole] * made)
                        prepared[text] = compiled(*weights)
                kept = prepared[text]
            arguments = (*places.arguments, *[whole] * len(kept))
            program = compile_program(module, arguments, places.results, _donated(static))
            return _Function(static, jax, places, program, kept)

        return Specialized(signature, copy, compiled) if is_dynamic(signature) else compiled(copy, signature)


def _donated(signature: Signature) -> frozenset[int]:
    """Return the positions of state arguments whose memory can hold the new values."""
    if signature.keeps_state:
        return frozenset()
    kinds = signature.arguments, signature.results
    return frozenset(at for new, at in signature.aliases.items() if kinds[0][at] == kinds[1][new])


class _Function:
    """Compiled code and its weights."""

    def __init__(
        self,
        signature: Signature,
        jax: Any,
        places: Placement,
        program: Any,
        weights: Sequence[Any],
    ):
        self.signature = signature
        self._program = program
        self._weights = weights
        self._devices = places.devices
        self._enable_x64 = jax.enable_x64
        self._arguments = DenseArguments(signature)
        kept = {at: at in _donated(signature) for at in signature.aliases.values()}
        self._passed: list[Callable[[Any], Any]] = [
            partial(_state, jax, place, kept[at])
            if at in kept
            else passed_as_array(signature.arguments[at])
            if places.devices == 1
            else PlacedWeight(place, partial(put, jax, place))
            if at in places.weights
            else partial(_placed, jax, place)
            for at, place in enumerate(places.arguments)
        ]
        """What passes an argument to the program."""
        self._results = [kind.dtypes[0] for kind in signature.results if isinstance(kind, TensorKind)]

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        results = self._run(arguments)
        if self._devices > 1:
            results = map(whole_array, results)
        return tuple([as_tensor(each, dtype) for each, dtype in zip(results, self._results, strict=True)])

    def keep_state(self, *arguments: Value | OnDevice) -> tuple[Any, ...]:
        """Call the function. New values of state stay on the device, in the memory of the old ones."""
        if not self.signature.aliases:
            return self(*cast("tuple[Value, ...]", arguments))
        results = [_Array(*each) for each in zip(self._run(arguments), self._results, strict=True)]
        return tuple(each if at in self.signature.aliases else each.tensor() for at, each in enumerate(results))

    def compiled_text(self) -> str:
        """Return the program that XLA has compiled, as it prints it."""
        return self._program.as_text()

    def _run(self, arguments: Sequence[Any]) -> Sequence[Any]:
        given = [passed(each) for passed, each in zip(self._passed, self._arguments(arguments), strict=True)]
        with self._enable_x64(True):
            try:
                results = self._program(*given, *self._weights)
                for each in results[:1]:  # arguments are read in place: nobody may write to them before
                    each.block_until_ready()
            except Exception:
                with Trace().stage("xla"), among_processes():  # which say what failed
                    raise
        return results


def _placed(jax: Any, place: Any, tensor: torch.Tensor) -> Any:
    with among_processes():
        return put(jax, place, tensor)


def _state(jax: Any, place: Any, donated: bool, value: Any) -> Any:
    """Return state as an array; a copy that may be written if it is donated."""
    if isinstance(value, _Array):
        return value.array
    return put(jax, place, value) if donated else as_array(value)


@dataclass(frozen=True)
class _Array(OnDevice):
    """A result on the device."""

    array: Any
    type: torch.dtype

    @property
    def dtype(self) -> torch.dtype:
        return self.type

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def tensor(self) -> torch.Tensor:
        return as_tensor(whole_array(self.array), self.type)

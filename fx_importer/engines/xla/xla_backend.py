"""Backend that runs StableHLO with XLA, from the packages ``jax`` and ``jaxlib``, on devices of the host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, cast

import torch

from fx_importer.calls.argument_values import DenseArguments
from fx_importer.calls.backend import Loaded, Value
from fx_importer.calls.call_signature import Signature, TensorKind, read_signature
from fx_importer.calls.specialization import Specialized, is_dynamic
from fx_importer.calls.state import OnDevice
from fx_importer.diagnostics.trace import Trace
from fx_importer.distributed.module_attributes import mesh_of
from fx_importer.distributed.shardings import is_sharded
from fx_importer.engines.engine_pipeline import run_engine_pipeline
from fx_importer.engines.function_extraction import check_dialects, extract_function
from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.engines.xla.stablehlo_loader import check_memory, torch_device
from fx_importer.engines.xla.xla_devices import HOST, Placement, artifact_errors, placement_of, whole_array
from fx_importer.engines.xla.xla_function import XlaFunction
from fx_importer.engines.xla.xla_mesh import PlacedWeight
from fx_importer.engines.xla.xla_pipeline import xla_pipeline
from fx_importer.engines.xla.xla_processes import among_processes
from fx_importer.engines.xla.xla_program import (
    XLA,
    XlaArray,
    as_array,
    as_tensor,
    compile_program,
    donated_positions,
    put,
)
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.constant_arguments import missing_data, name_resources, resource_tensor
from fx_importer.mlir.emit.emitter import terminator
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.resources import byte_size, key_of
from fx_importer.rewrites.xla.weight_preparation import split_preparation

_TORCH: Any = torch


@dataclass(frozen=True)
class XlaBackend:
    """XLA. A program with a plan runs on as many devices of the host as its mesh has."""

    name: str = "xla"
    platform: str = HOST
    """The device: jax's name of a platform, ``"cpu"`` or that of a plug-in, and an index: ``"cuda:1"``."""
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor], hash=False)
    """The weights of elided resources, by their names. Functions that are loaded share them."""
    uploaded: dict[str, Any] = field(default_factory=dict[str, Any], hash=False, compare=False, repr=False)
    """Those that are on the devices, by name."""

    copies_weights: ClassVar[bool] = True
    """Whether it copies `weights`: a change in place is not seen, and an error of the caller."""

    def with_weights(self, weights: Mapping[str, torch.Tensor]) -> XlaBackend:
        """Return the backend with `weights`."""
        return replace(self, weights=weights, uploaded={})

    def _uploaded(self, resource: ir.Attribute, put: Callable[[torch.Tensor], Any]) -> Any:
        """Return a weight on the devices. Functions share those of `weights`."""
        name = key_of(resource)
        if name in self.weights:
            if name not in self.uploaded:
                self.uploaded[name] = put(self.weights[name])
            return self.uploaded[name]
        if (tensor := resource_tensor(resource, XLA.dtypes)) is None:
            raise missing_data(resource)
        return put(tensor)

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
        device = next(iter(whole.device_set))
        if places.devices == 1:
            where = torch_device(_TORCH, device)
            signature = replace(signature, device=where, host=self.platform == HOST)
        with Trace().stage("constants"):
            resources = name_resources(function, "stablehlo.constant")
            if self.platform != HOST:
                _check_memory(places, resources, self.uploaded)
            weights = [self._uploaded(resource, partial(put, jax, whole)) for resource in resources]
        prepared: dict[str, Sequence[Any]] = {}

        def compiled(module: ir.Module, static: Signature) -> Loaded:
            run_engine_pipeline(xla_pipeline(self.platform.partition(":")[0], places.devices), module)
            preparation = split_preparation(functions_of(module)["main"], len(signature.arguments), XLA.dtypes)
            kept = weights
            if preparation is not None:
                text = str(preparation)  # specializations for other sizes prepare the weights alike
                if text not in prepared:
                    with jax.enable_x64(True):
                        made = len(read_signature(functions_of(preparation)["main"], XLA).results)
                        unchanged = _returned_arguments(preparation)  # before it becomes an artifact
                        compiled = compile_program(preparation, [whole] * len(weights), [whole] * made)
                        prepared[text] = [
                            weights[unchanged[at]] if at in unchanged else result
                            for at, result in enumerate(compiled(*weights))
                        ]
                kept = prepared[text]
            arguments = (*places.arguments, *[whole] * len(kept))
            program = compile_program(module, arguments, places.results, donated_positions(static))
            if places.devices == 1:
                return XlaFunction(static, jax, device, program, kept)
            return _MeshFunction(static, jax, places, program, kept)

        return Specialized(signature, copy, compiled) if is_dynamic(signature) else compiled(copy, signature)


def _check_memory(places: Placement, resources: Sequence[ir.Attribute], uploaded: Collection[str]) -> None:
    """Raise `UsageError` if the device has too little memory left for the weights that are not there."""
    sizes = [byte_size(resource) for resource in resources if key_of(resource) not in uploaded]
    for device in places.whole.device_set:
        with artifact_errors():
            check_memory(device, sum(sizes), "the weights")


def _returned_arguments(module: ir.Module) -> dict[int, int]:
    """Return the positions of results of ``main`` that are arguments, and of these: they need no copy."""
    returned = enumerate(terminator(functions_of(module)["main"].entry_block).operands)
    return {at: ir.BlockArgument(value).arg_number for at, value in returned if isinstance(value.owner, ir.Block)}


class _MeshFunction:
    """Compiled code for several devices, and its weights."""

    def __init__(self, signature: Signature, jax: Any, places: Placement, program: Any, weights: Sequence[Any]):
        self.signature = signature
        self._program = program
        self._weights = weights
        self._enable_x64 = jax.enable_x64
        self._arguments = DenseArguments(signature)
        donated = donated_positions(signature)
        kept = {at: at in donated for at in signature.aliases.values()}
        self._passed: list[Callable[[Any], Any]] = [
            partial(_state, jax, argument, kept[at])
            if at in kept
            else PlacedWeight(argument, partial(put, jax, argument))
            if at in places.weights
            else partial(_placed, jax, argument)
            for at, argument in enumerate(places.arguments)
        ]
        """What passes an argument to the program."""
        self._results = [kind.dtypes[0] for kind in signature.results if isinstance(kind, TensorKind)]

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        results = map(whole_array, self._run(arguments))
        return tuple([as_tensor(result, dtype) for result, dtype in zip(results, self._results, strict=True)])

    def keep_state(self, *arguments: Value | OnDevice) -> tuple[Any, ...]:
        """Call the function. New values of state stay on the device, in the memory of the old ones."""
        if not self.signature.aliases:
            return self(*cast("tuple[Value, ...]", arguments))
        results = [_Array(*result) for result in zip(self._run(arguments), self._results, strict=True)]
        return tuple(result if at in self.signature.aliases else result.tensor() for at, result in enumerate(results))

    def compiled_text(self) -> str:
        """Return the program that XLA has compiled, as it prints it."""
        return self._program.as_text()

    def _run(self, arguments: Sequence[Any]) -> Sequence[Any]:
        inputs = [passed(argument) for passed, argument in zip(self._passed, self._arguments(arguments), strict=True)]
        with self._enable_x64(True):
            try:
                results = self._program(*inputs, *self._weights)
                for result in results[:1]:  # arguments are read in place: nobody may write to them before
                    result.block_until_ready()
            except Exception:
                with Trace().stage("xla"), among_processes():  # which say what failed
                    raise
        return results


def _placed(jax: Any, target: Any, tensor: torch.Tensor) -> Any:
    with among_processes():
        return put(jax, target, tensor)


def _state(jax: Any, target: Any, donated: bool, value: Any) -> Any:
    """Return state as an array; a copy that may be written if it is donated."""
    if isinstance(value, _Array):
        return value.array
    return put(jax, target, value) if donated else as_array(value)


@dataclass(frozen=True)
class _Array(XlaArray):
    """A result on the device."""

    def tensor(self) -> torch.Tensor:
        return as_tensor(whole_array(self.array), self.type)

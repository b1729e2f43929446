"""Backend that runs StableHLO with XLA, from the packages ``jax`` and ``jaxlib``, on the host CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fx_importer.diagnostics.trace import Trace
from fx_importer.execution.backend import Loaded, Value
from fx_importer.execution.call_signature import IN_STABLEHLO, CallingConvention, Signature, TensorKind, read_signature
from fx_importer.execution.constant_arguments import take_resources
from fx_importer.execution.memref import dense
from fx_importer.execution.module_functions import check_dialects, extract_function, functions_of
from fx_importer.execution.optional_packages import imported, require
from fx_importer.execution.specialization import Specialized, is_dynamic
from fx_importer.execution.stablehlo_layouts import use_layouts_of_convolutions
from fx_importer.execution.state import OnDevice
from fx_importer.execution.weight_preparation import split_preparation
from fx_importer.mlir.bindings import func_d, ir, portable_artifact

XLA = CallingConvention("XLA", "stablehlo", IN_STABLEHLO)


@dataclass(frozen=True)
class XlaBackend:
    """XLA, for the CPU."""

    name: str = "xla"

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Compile the function ``func_name`` of ``module``, which does not change, from a portable artifact.

        Weights become arguments: an artifact has no ``dense_resource``. With dynamic sizes, a static specialization is
        compiled for each set of sizes.

        Raises:
            NotInstalledError: without ``jax`` and ``jaxlib``.
            UsageError: if there is no such function, or it takes or returns anything but tensors, or
                has operations of other dialects.
            StageFailed: if the module cannot be serialized to an artifact, or XLA cannot compile it.
        """
        require(self.name, "xla", "jax", "jaxlib")
        copy, function = extract_function(module, func_name)
        signature = read_signature(function, XLA)
        check_dialects(copy, ("builtin", "func", "stablehlo"), XLA)
        _donate(function, signature)
        jax = imported(self.name, "xla", "jax")
        with Trace().stage("constants"):
            weights = take_resources(function, "stablehlo.constant", XLA.dtypes)
        client = imported(self.name, "xla", "jax.extend.backend").get_backend("cpu")
        device = client.local_devices()[0]
        kept = _put(jax, device, weights)
        prepared: dict[str, list[Any]] = {}

        def compiled(module: ir.Module, static: Signature) -> _Function:
            use_layouts_of_convolutions(module)
            preparation = split_preparation(functions_of(module)["main"], len(signature.arguments), XLA.dtypes)
            if preparation is None:
                return _Function(static, jax, device, _compiled(module, client, device), kept)
            text = str(preparation)  # specializations for other sizes prepare the weights alike
            if text not in prepared:
                prepared[text] = _execute(_compiled(preparation, client, device), kept)
            return _Function(static, jax, device, _compiled(module, client, device), prepared[text])

        return Specialized(signature, copy, compiled) if is_dynamic(signature) else compiled(copy, signature)


def _donate(function: func_d.FuncOp, signature: Signature) -> None:
    """Let new values of state be in the memory of the old ones, as jax spells it: the arguments are always copies."""
    given = (
        [dict(each) for each in map(_named, ir.ArrayAttr(function.attributes["arg_attrs"]))]
        if signature.aliases
        else []
    )
    for result, argument in signature.aliases.items():
        if signature.results[result] == signature.arguments[argument]:
            i32 = ir.IntegerType.get_signless(32, function.context)
            given[argument]["tf.aliasing_output"] = ir.IntegerAttr.get(i32, result)
    if given:
        attributes = [ir.DictAttr.get(each, function.context) for each in given]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes, function.context)


def _named(attributes: ir.Attribute) -> list[tuple[str, ir.Attribute]]:
    return [(each.name, each.attr) for each in ir.DictAttr(attributes)]


def _compiled(module: ir.Module, client: Any, device: Any) -> Any:
    with Trace().stage("artifact"):
        artifact = portable_artifact(module)
    with Trace().stage("xla-compile"):
        xla_client = imported("xla", "xla", "jaxlib.xla_client")
        return client.compile_and_load(artifact, xla_client.DeviceList((device,)), xla_client.CompileOptions())


def _execute(executable: Any, arrays: Sequence[Any]) -> list[Any]:
    returned = executable.execute_sharded(list(arrays))
    return [each[0] for each in returned.disassemble_into_single_device_arrays()]


def _put(jax: Any, device: Any, tensors: Sequence[torch.Tensor]) -> list[Any]:
    with jax.enable_x64(True):  # without it, 64 bits become 32
        return [jax.device_put(_array(each), device) for each in tensors]


def _array(tensor: torch.Tensor) -> Any:
    """Return a copy of ``tensor`` as an array. ``ml_dtypes`` has the dtypes that numpy lacks, under torch's names."""
    if tensor.dtype in _IN_NUMPY:
        return dense(tensor).numpy().copy()
    types = imported("xla", "xla", "ml_dtypes")
    name = str(tensor.dtype).removeprefix("torch.")
    return dense(tensor).view(_BITS[tensor.dtype.itemsize]).numpy().copy().view(getattr(types, name))


_BITS = {1: torch.int8, 2: torch.int16}
_IN_NUMPY = {dtypes[0] for name, dtypes in IN_STABLEHLO.items() if not name.startswith(("bf", "f8"))}


@dataclass(frozen=True)
class _Function:
    """Compiled code and its weights."""

    signature: Signature
    jax: Any
    device: Any
    executable: Any
    weights: Sequence[Any]

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        return tuple(each.tensor() if isinstance(each, OnDevice) else each for each in self.keep_state(*arguments))

    def keep_state(self, *arguments: Value | OnDevice) -> tuple[Any, ...]:
        """Call the function. New values of state stay on the device, in the memory of the old ones."""
        self.signature.check(arguments)
        inputs = [
            each.array if isinstance(each, _Array) else _put(self.jax, self.device, [each])[0]
            for each in arguments
            if isinstance(each, torch.Tensor | _Array)
        ]
        with Trace().stage("xla"), self.jax.enable_x64(True):
            arrays = _execute(self.executable, [*inputs, *self.weights])
        kinds = [kind for kind in self.signature.results if isinstance(kind, TensorKind)]
        results = [_Array(array, kind.dtypes[0]) for array, kind in zip(arrays, kinds, strict=True)]
        return tuple(each if at in self.signature.aliases else each.tensor() for at, each in enumerate(results))


@dataclass(frozen=True)
class _Array(OnDevice):
    """A result on the device."""

    array: Any
    type: torch.dtype

    @property
    def dtype(self) -> torch.dtype:
        return self.type

    def tensor(self) -> torch.Tensor:
        return _tensor(np.array(self.array), self.type)


def _tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    if dtype not in _IN_NUMPY:
        array = array.view(f"i{dtype.itemsize}")
    return torch.from_numpy(array).view(dtype)

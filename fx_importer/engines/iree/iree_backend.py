"""Backend that compiles every output type except raw with IREE, and runs it on the CPU or a GPU."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fx_importer.calls.argument_values import DenseArguments
from fx_importer.calls.backend import Loaded, Value
from fx_importer.calls.call_signature import (
    IN_STABLEHLO,
    CallingConvention,
    Kind,
    Signature,
    TensorKind,
    read_signature,
)
from fx_importer.calls.specialization import Specialized, is_dynamic
from fx_importer.calls.state import OnDevice
from fx_importer.diagnostics.trace import Trace
from fx_importer.engines.function_extraction import extract_function
from fx_importer.engines.iree.engine import IREE_ENGINE
from fx_importer.engines.iree.iree_compiler import compile_to, input_type_of, prepare
from fx_importer.engines.iree.iree_devices import check_device, device_of, page_aligned, takes_tensors, to_host
from fx_importer.engines.iree.iree_parameters import SCOPE
from fx_importer.engines.iree.iree_shared_memory import SharedDevice, written_arguments
from fx_importer.engines.iree.iree_targets import HOST, IreeTarget, iree_target
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import terminator
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.tensor_elements import as_array
from fx_importer.process.scratch import Scratch

IREE = CallingConvention("IREE", "linalg-on-tensors", IN_STABLEHLO, scalars=True, torch_dialect=True)

_ELEMENTS = {
    torch.float64: "FLOAT_64",
    torch.float32: "FLOAT_32",
    torch.float16: "FLOAT_16",
    torch.bfloat16: "BFLOAT_16",
    torch.float8_e4m3fn: "FLOAT_8_E4M3_FN",
    torch.float8_e5m2: "FLOAT_8_E5M2",
    torch.float8_e4m3fnuz: "FLOAT_8_E4M3_FNUZ",
    torch.float8_e5m2fnuz: "FLOAT_8_E5M2_FNUZ",
    torch.complex64: "COMPLEX_64",
    torch.complex128: "COMPLEX_128",
    torch.bool: "BOOL_8",
}
"""IREE's names of element types that are not integers."""


@dataclass(frozen=True)
class IreeBackend:
    """IREE, for the CPU, or for a GPU of this machine."""

    name: str = "iree"
    parameters: Mapping[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor], hash=False)
    """The weights of elided resources, by their names. Compiled code for the CPU reads them in place."""
    target: str = HOST
    """The device, as `iree_target` takes it."""
    index: int = 0
    """Which device of the target's driver runs it, of several GPUs."""

    def with_weights(self, weights: Mapping[str, torch.Tensor]) -> IreeBackend:
        """Return the backend with `parameters`."""
        return replace(self, parameters=weights)

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Compile the function ``func_name`` of ``module``, which does not change.

        In StableHLO with dynamic sizes, a static specialization is compiled for each set of sizes.

        Raises:
            NotInstalledError: without ``iree-base-compiler`` and ``iree-base-runtime``.
            UsageError: if no function has that name, it takes or returns anything but tensors, or sorts in linalg, or
                this machine has no device of the target and index, or one that computes wrong numbers with code for it.
            StageFailed: if IREE cannot compile it, with its errors.
        """
        IREE_ENGINE.check_installed()
        copy, function = extract_function(module, func_name)
        signature = read_signature(function, IREE)
        kind, target = input_type_of(copy), iree_target(self.target)
        check_device(target, self.index)
        if target.shared is not None:
            signature = replace(signature, device=torch.device(target.shared, self.index))
        if kind == "stablehlo" and is_dynamic(signature):
            # IREE 3.13 does not lower dynamic_reshape.
            return Specialized(
                signature, copy, lambda module, static: _load(module, static, kind, self.parameters, target, self.index)
            )
        return _load(copy, signature, kind, self.parameters, target, self.index)


def _load(
    module: ir.Module,
    signature: Signature,
    kind: str,
    parameters: Mapping[str, torch.Tensor],
    target: IreeTarget,
    index: int,
) -> _Function:
    prepare(module, kind, target)
    function = functions_of(module)["main"]
    unchanged, written = _unchanged(function), written_arguments(function, signature)
    scratch = Scratch()
    compiled = scratch.path / "module.vmfb"
    compile_to(compiled, module, kind, target, parameters)
    runtime, device, main = _loaded(compiled, parameters, target, index)
    takes = target.shared is not None and takes_tensors(target, index)
    shared = SharedDevice(signature.device, device) if takes else None
    dense = DenseArguments(signature)
    return _Function(signature, runtime, device, main, scratch, unchanged, dense, target, shared, written)


def _unchanged(function: func_d.FuncOp) -> dict[int, int]:
    """Return the positions of results that are arguments, and of these.

    IREE 3.13 returns the buffer that it was given, also if it writes to it.
    """
    results = enumerate(terminator(function.entry_block).operands)
    return {at: ir.BlockArgument(result).arg_number for at, result in results if isinstance(result.owner, ir.Block)}


@functools.cache
def _config(driver: str, index: int) -> Any:
    """Return the configuration with the device, which all functions share: so one can take what another returned."""
    return IREE_ENGINE.imported("iree.runtime").Config(device=device_of(driver, index))


def _loaded(
    compiled: Path, parameters: Mapping[str, torch.Tensor], target: IreeTarget, index: int
) -> tuple[Any, Any, Any]:
    """Return the module ``iree.runtime``, the device, and the function ``main``.

    The CPU runs on all processors, unless PyTorch has one thread.
    """
    runtime = IREE_ENGINE.imported("iree.runtime")
    config = _config("local-sync" if target.is_cpu and torch.get_num_threads() == 1 else target.driver, index)
    modules = [runtime.VmModule.mmap(config.vm_instance, str(compiled))]
    if parameters:
        stored = runtime.ParameterIndex()
        for key, tensor in parameters.items():
            stored.add_buffer(key, as_array(tensor.detach()).view(np.uint8))
        provider = stored.create_provider(SCOPE)
        modules.insert(0, runtime.create_io_parameters_module(config.vm_instance, provider))
    module = runtime.load_vm_modules(*modules, config=config)[-1]
    return runtime, config.device, module["main"]


@dataclass(frozen=True)
class _Function:
    signature: Signature
    runtime: Any
    device: Any
    main: Any
    scratch: Scratch
    """The directory of the compiled code."""

    unchanged: Mapping[int, int]
    """The positions of results that are arguments, and of these."""
    dense: DenseArguments
    target: IreeTarget
    shared: SharedDevice | None
    """The device of PyTorch whose tensors are passed in place, if IREE takes them."""
    written: frozenset[int]
    """The positions of arguments that the program may write to."""
    lock: AbstractContextManager[Any] = field(default_factory=threading.Lock, repr=False, compare=False)

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        return tuple(value.tensor() if isinstance(value, OnDevice) else value for value in self.keep_state(*arguments))

    def keep_state(self, *arguments: Value | OnDevice) -> tuple[Any, ...]:
        """Call the function. New values of state stay on the device, and are taken from there."""
        keeps = self.signature.keeps_state  # IREE 3.13 writes slices to the buffer that it was given
        dense = self.dense(arguments)
        devices = (value.device for value in dense if isinstance(value, torch.Tensor))
        there = next((device for device in devices if device.type != "cpu"), None)
        if self.shared is not None:
            self.shared.wait_for_torch()
        values = [
            self._pass(at, value.tensor() if isinstance(value, OnDevice) else value)
            if keeps or not isinstance(value, _Array)
            else value.array
            for at, value in enumerate(dense)
        ]
        kept = {
            at: _copied(arguments[position], at in self.signature.aliases) for at, position in self.unchanged.items()
        }
        try:
            with self.lock:  # IREE's contexts are for one thread at a time
                returned = self.main(*values)
        except Exception:
            with Trace().stage("iree"):  # which says what failed; entering it takes as long as a short call
                raise
        results = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
        return tuple(
            kept[at] if at in kept else self._taken(at, value, kind, there)
            for at, (kind, value) in enumerate(zip(self.signature.results, results, strict=True))
        )

    def _taken(self, at: int, result: Any, kind: Kind, there: torch.device | None) -> Any:
        """Return a result on the device ``there``, or else on the CPU; new state stays where it is."""
        if not isinstance(kind, TensorKind):
            return kind.python(result)
        array = _Array(result, kind, self.device if self.target.driver == "vulkan" else None)
        if at in self.signature.aliases:
            return array
        return array.tensor() if there is None else array.tensor().to(there)

    def _pass(self, at: int, value: Any) -> Any:
        """Return a dense tensor on the device, a copy if it was on the host: as bits if numpy lacks its dtype."""
        if not isinstance(value, torch.Tensor):
            return int(value) if isinstance(value, bool) else value
        if self.shared is not None and self.shared.has(value):
            return self.shared.taken(value, _constants(value.dtype)[2], written=at in self.written)
        bits = (value.detach() if value.requires_grad else value).cpu()
        if bits.dtype not in _IN_NUMPY:
            bits = bits.view(_INTEGERS[bits.dtype.itemsize])
        array, dtype = bits.numpy(), value.dtype
        if self.target.narrow_integers and dtype == torch.int64:
            array, dtype = _narrowed(value), torch.int32
        memory, usage, element = _constants(dtype)
        if self.target.driver == "vulkan":
            array = page_aligned(array)
        return self.device.allocator.allocate_buffer_copy(memory, usage, self.device, array, element)


@functools.cache
def _constants(dtype: torch.dtype) -> tuple[Any, Any, Any]:
    """Return the memory type and usage of arguments, and the element type of tensors of ``dtype``."""
    runtime = IREE_ENGINE.imported("iree.runtime")
    element = _ELEMENTS.get(dtype, f"SINT_{8 * dtype.itemsize}")
    memory, usage = runtime.MemoryType.DEVICE_LOCAL, runtime.BufferUsage.DEFAULT
    return memory, usage, getattr(runtime.HalElementType, element)


def _narrowed(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the int64 ``value`` as int32. Raises `UsageError` if it does not fit."""
    limits = torch.iinfo(torch.int32)
    if value.numel() and not bool(((value >= limits.min) & (value <= limits.max)).all()):
        raise UsageError("an argument of int64 has values beyond 32 bits, and the device computes in 32 bits")
    return value.to(torch.int32).numpy()


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.complex128, torch.complex64)
_IN_NUMPY = {*_FLOATS, torch.bool, *_INTEGERS.values(), torch.uint8}


def _copied(value: Any, state: bool) -> Any:
    """Return a result that is an argument; state may stay where it is."""
    if isinstance(value, OnDevice):
        return value if state else value.tensor()
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


@dataclass(frozen=True)
class _Array(OnDevice):
    """A result on the device."""

    array: Any
    kind: TensorKind
    device: Any
    """The device, if IREE does not copy from it to any memory of the host."""

    @property
    def dtype(self) -> torch.dtype:
        return self.kind.dtypes[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def tensor(self) -> torch.Tensor:
        host_array = self.array.to_host() if self.device is None else to_host(self.array, self.device)
        return _tensor(host_array.astype(np.int64, copy=False) if self.dtype == torch.int64 else host_array, self.kind)


def _tensor(array: Any, kind: TensorKind) -> torch.Tensor:
    (dtype, *_) = kind.dtypes
    assert array.dtype.itemsize == dtype.itemsize
    if dtype not in _IN_NUMPY:
        array = array.view(f"i{dtype.itemsize}")
    tensor = torch.from_numpy(array.copy())
    return tensor if tensor.dtype is dtype else tensor.view(dtype)

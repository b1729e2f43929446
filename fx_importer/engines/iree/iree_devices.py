"""Devices of IREE: whether this machine has one that computes right numbers; transfers of tensors to and from it."""

from __future__ import annotations

import functools
import itertools
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fx_importer.engines.iree.engine import IREE_ENGINE
from fx_importer.engines.iree.iree_compiler import compile_to
from fx_importer.engines.iree.iree_shared_memory import SharedDevice
from fx_importer.engines.iree.iree_targets import HOST, IreeTarget, check_processor
from fx_importer.errors import FxImporterError, UsageError
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.process.scratch import Scratch

Array = np.ndarray[Any, Any]

_PRODUCT_AND_SUM = """
func.func @main(%a: tensor<7x512xf32>, %b: tensor<512x40xf32>) -> (tensor<7x40xf32>, tensor<7xf32>) {
  %zero = arith.constant 0.0 : f32
  %c = tensor.empty() : tensor<7x40xf32>
  %d = linalg.fill ins(%zero : f32) outs(%c : tensor<7x40xf32>) -> tensor<7x40xf32>
  %product = linalg.matmul ins(%a, %b : tensor<7x512xf32>, tensor<512x40xf32>) outs(%d : tensor<7x40xf32>)
      -> tensor<7x40xf32>
  %e = tensor.empty() : tensor<7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  %sums = linalg.reduce { arith.addf } ins(%a : tensor<7x512xf32>) outs(%f : tensor<7xf32>) dimensions = [1]
  return %product, %sums : tensor<7x40xf32>, tensor<7xf32>
}
"""

_NARROW = """
func.func @main(%a: tensor<64x128xi1>, %b: tensor<64x128xi8>, %c: tensor<64x128xi16>, %d: tensor<64x128xf16>)
    -> (tensor<64x128xi32>, tensor<64x128xi32>, tensor<64x128xi32>, tensor<64x128xf32>,
        tensor<64x128xi8>, tensor<64x128xi16>, tensor<64x128xf16>) {
  %0 = arith.extui %a : tensor<64x128xi1> to tensor<64x128xi32>
  %1 = arith.extsi %b : tensor<64x128xi8> to tensor<64x128xi32>
  %2 = arith.extsi %c : tensor<64x128xi16> to tensor<64x128xi32>
  %3 = arith.extf %d : tensor<64x128xf16> to tensor<64x128xf32>
  %4 = arith.addi %b, %b : tensor<64x128xi8>
  %5 = arith.addi %c, %c : tensor<64x128xi16>
  %6 = arith.addf %d, %d : tensor<64x128xf16>
  return %0, %1, %2, %3, %4, %5, %6 : tensor<64x128xi32>, tensor<64x128xi32>, tensor<64x128xi32>,
      tensor<64x128xf32>, tensor<64x128xi8>, tensor<64x128xi16>, tensor<64x128xf16>
}
"""


@dataclass(frozen=True)
class _Probe:
    """A program, its description, its arguments, and its results by numpy."""

    program: str
    what: str
    arguments: tuple[Array, ...]
    expected: Callable[..., Sequence[Array]]


def _probes() -> tuple[_Probe, _Probe]:
    """Return the probes: of kernels with subgroups, and of reading and writing elements of fewer than 32 bits.

    Code for a device with other subgroups runs, and computes something else. So does code of IREE 3.13 for a device
    that it takes to have no storage of 8 and 16 bits (see `iree_targets`).
    """
    draws = np.random.default_rng(0)
    floats = tuple(draws.standard_normal(shape, dtype=np.float32) for shape in ((7, 512), (512, 40)))
    narrow = (draws.integers(-100, 100, (64, 128)).astype(dtype) for dtype in (np.int8, np.int16, np.float16))
    masks = draws.integers(0, 2, (64, 128)).astype(np.bool_)
    return (
        _Probe(_PRODUCT_AND_SUM, "a product or a sum", floats, lambda a, b: (a @ b, a.sum(1))),
        _Probe(
            _NARROW,
            "a bool, 8-bit or 16-bit tensor",
            (masks, *narrow),
            lambda a, *others: (a, *others, *(2 * other for other in others)),
        ),
    )


@functools.cache
def check_device(target: IreeTarget, index: int = 0) -> None:
    """Compile two small programs for ``target``, and run them on the device of this machine with this index.

    Raises:
        UsageError: if the device does not exist, or the numbers are wrong.
        StageFailed: if IREE does not compile for the target.
    """
    if target.name == HOST and not index:
        return
    if target.is_cpu and target.name != HOST:
        check_processor(target.name)
    runtime = IREE_ENGINE.imported("iree.runtime")
    try:
        config = runtime.Config(device=device_of(target.driver, index))
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"this machine has no device for '{target.name}': {str(error).splitlines()[0]}. Compiling for it needs none"
        ) from None
    floats, narrow = _probes()
    _check(floats, target, config)
    try:
        _check(narrow, target, config)
    except UsageError:
        raise
    except (FxImporterError, RuntimeError, ValueError):
        return  # a device without such elements: a program that has them meets the same error


def device_of(driver: str, index: int) -> Any:
    """Return the device of a driver with an index.

    Raises:
        UsageError: if the driver has fewer devices.
        RuntimeError: if there is no such driver here; ValueError likewise.
    """
    runtime = IREE_ENGINE.imported("iree.runtime")
    if not index:
        return runtime.get_device(driver)
    devices = runtime.get_driver(driver).query_available_devices()
    if index >= len(devices):
        count = "1 device" if len(devices) == 1 else f"{len(devices)} devices"
        raise UsageError(f"there is no device {index} of IREE's driver '{driver}': it has {count}, numbered from 0")
    return runtime.get_driver(driver).create_device(devices[index])


@functools.cache
def takes_tensors(target: IreeTarget, index: int) -> bool:
    """Return whether the device computes right numbers from tensors of PyTorch in its memory: a copy, and in place."""
    assert target.shared is not None
    config = IREE_ENGINE.imported("iree.runtime").Config(device=device_of(target.driver, index))
    shared = SharedDevice(torch.device(target.shared, index), config.device)
    written = itertools.cycle((True, False))

    def passed(array: Array, device: Any) -> Any:
        tensor = torch.from_numpy(array).to(shared.device)
        shared.wait_for_torch()
        return shared.taken(tensor, _element(array), written=next(written))

    try:
        _check(_probes()[0], target, config, passed)
    except (UsageError, RuntimeError, ValueError):
        return False
    return True


def _check(probe: _Probe, target: IreeTarget, config: Any, passed: Callable[[Array, Any], Any] | None = None) -> None:
    runtime = IREE_ENGINE.imported("iree.runtime")
    scratch = Scratch()
    compiled = scratch.path / "probe.vmfb"
    compile_to(compiled, ir.Module.parse(probe.program, new_context()), "none", target)
    main = runtime.load_vm_modules(runtime.VmModule.mmap(config.vm_instance, str(compiled)), config=config)[-1]["main"]
    results = main(*((passed or _passed)(argument, config.device) for argument in probe.arguments))
    expected = probe.expected(*probe.arguments)
    pairs = zip(results, expected, strict=True)
    worst = np.max([_difference(to_host(one, config.device), other) for one, other in pairs])  # NaN, if one is
    if not worst < 1e-2:
        raise UsageError(
            f"the device '{_name(runtime, target)}' computes wrong numbers with code for '{target.name}' "
            f"({probe.what} is off by {worst:.2g}): name an architecture that fits it"
        )


def _difference(result: Array, expected: Array) -> float:
    return float(np.abs(result.astype(np.float64) - expected).max())


def _passed(array: Array, device: Any) -> Any:
    runtime = IREE_ENGINE.imported("iree.runtime")
    memory, usage = runtime.MemoryType.DEVICE_LOCAL, runtime.BufferUsage.DEFAULT
    return device.allocator.allocate_buffer_copy(memory, usage, device, page_aligned(array), _element(array))


def _element(array: Array) -> Any:
    return getattr(IREE_ENGINE.imported("iree.runtime").HalElementType, _ELEMENTS[array.dtype.name])


_ELEMENTS = {"float32": "FLOAT_32", "float16": "FLOAT_16", "int16": "SINT_16", "int8": "SINT_8", "bool": "BOOL_8"}


def _name(runtime: Any, target: IreeTarget) -> str:
    return next(iter(runtime.get_driver(target.driver).query_available_devices()))["name"]


def page_aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of ``array`` at the start of a page: Vulkan imports no other memory of the host."""
    memory = np.frombuffer(mmap.mmap(-1, max(array.nbytes, 1)), dtype=np.uint8)
    copy = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def to_host(result: Any, device: Any) -> np.ndarray[Any, Any]:
    """Return a copy of ``result``, an ``iree.runtime.DeviceArray``, by a buffer that the host maps.

    ``DeviceArray.to_host`` of IREE 3.13 imports unaligned memory, which Vulkan refuses.
    """
    runtime = IREE_ENGINE.imported("iree.runtime")
    view = result._buffer_view
    source = view.get_buffer()
    memory = runtime.MemoryType.HOST_LOCAL | runtime.MemoryType.DEVICE_VISIBLE
    usage = runtime.BufferUsage.TRANSFER_TARGET | runtime.BufferUsage.MAPPING_SCOPED
    staging = device.allocator.allocate_buffer(memory, usage, source.byte_length())
    semaphore = device.create_semaphore(0)
    done = runtime.HalFence.create_at(semaphore, 1)
    device.queue_copy(source, staging, runtime.HalFence.create_at(semaphore, 0), done)
    done.wait()
    dtype = runtime.HalElementType.map_to_dtype(view.element_type)
    return np.array(staging.map().asarray(view.shape, dtype))

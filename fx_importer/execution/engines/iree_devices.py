"""Whether this machine has a device of a target of IREE that computes right numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fx_importer.errors import UsageError
from fx_importer.execution.engines.iree_compiler import compile_to
from fx_importer.execution.engines.iree_targets import HOST, IreeTarget
from fx_importer.execution.engines.iree_transfers import page_aligned, to_host
from fx_importer.execution.optional_packages import imported
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.process.scratch import Scratch

_PROBE = """
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
"""A matrix product and a reduction: code for devices with other subgroups runs, and computes something else."""


@functools.cache
def check_device(target: IreeTarget) -> None:
    """Compile a small program for ``target``, and run it on the device of this machine.

    Raises:
        UsageError: if there is no such device, or the numbers are wrong.
        StageFailed: if IREE does not compile for the target.
    """
    if target.name == HOST:
        return
    runtime = imported("iree", "iree", "iree.runtime")
    try:
        config = runtime.Config(target.driver)
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"this machine has no device for '{target.name}': {str(error).splitlines()[0]}. Compiling for it needs none"
        ) from None
    scratch = Scratch()
    compiled = scratch.path / "probe.vmfb"
    compile_to(compiled, ir.Module.parse(_PROBE, new_context()), "none", target)
    main = runtime.load_vm_modules(runtime.VmModule.mmap(config.vm_instance, str(compiled)), config=config)[-1]["main"]
    draws = np.random.default_rng(0)
    left, right = (draws.standard_normal(shape, dtype=np.float32) for shape in ((7, 512), (512, 40)))
    found = main(_passed(left, config.device), _passed(right, config.device))
    expected = left @ right, left.sum(1)
    worst = max(
        float(np.abs(to_host(one, config.device) - other).max()) for one, other in zip(found, expected, strict=True)
    )
    if not worst < 1e-2:
        raise UsageError(
            f"the device '{_name(runtime, target)}' computes wrong numbers with code for '{target.name}' (a product or "
            f"a sum is off by {worst:.2g}): name an architecture that fits it"
        )


def _passed(array: np.ndarray[Any, Any], device: Any) -> Any:
    runtime = imported("iree", "iree", "iree.runtime")
    memory, usage = runtime.MemoryType.DEVICE_LOCAL, runtime.BufferUsage.DEFAULT
    element = runtime.HalElementType.FLOAT_32
    return device.allocator.allocate_buffer_copy(memory, usage, device, page_aligned(array), element)


def _name(runtime: Any, target: IreeTarget) -> str:
    return next(iter(runtime.get_driver(target.driver).query_available_devices()))["name"]

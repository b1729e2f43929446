"""Tracing and running of Triton kernels on machines without a device that the triton package supports."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch._library import triton as triton_operators
from torch._ops import OpOverload
from torch.fx import node as fx_node
from torch.utils import _triton as device_check

from fx_importer.errors import ExportError
from fx_importer.frontend.torch_patches import (
    BFLOAT16_METHODS,
    BFLOAT16_REDUCTIONS,
    CONFIG_CLASS,
    FP_FUSION,
    HAS_TRITON,
    KERNEL_CALL,
    KERNEL_CLASS,
    KERNEL_RUN,
    SIDE_EFFECTS,
    TRITON_DRIVER,
    TUNER_CLASS,
    TUNER_RUN,
    Patch,
    patched,
)


def is_triton_operator(target: object) -> bool:
    """Return whether ``target`` was defined with ``torch.library.triton_op``."""
    return isinstance(target, OpOverload) and target._schema.name in triton_operators.triton_ops_to_kernels


@contextmanager
def traceable_kernels() -> Iterator[None]:
    """Let torch trace launches of Triton kernels, also without a device: it knows kernels only where it finds one.

    Does nothing if the triton package is not imported, as no kernel can exist then. Triton's IR is generated for
    NVIDIA's sm_80, unless there is a device. A launch in a branch, which torch takes for dead code, is an error of
    its verifier.
    """
    if "triton" not in sys.modules:
        yield
        return
    from torch._higher_order_ops import triton_kernel_wrap

    launch = triton_kernel_wrap.triton_kernel_wrapper_mutation
    effects = {*fx_node._side_effectful_functions, launch}
    values = {SIDE_EFFECTS: effects, FP_FUSION: os.environ.get(FP_FUSION.name, "1")}
    with patched(values if device_check.has_triton() else values | _without_device()):
        yield


def _without_device() -> dict[Patch, Any]:
    from triton.runtime.autotuner import Autotuner, Config
    from triton.runtime.jit import JITFunction

    classes = {KERNEL_CLASS: JITFunction, TUNER_CLASS: Autotuner, CONFIG_CLASS: Config}
    return {HAS_TRITON: lambda: True, TRITON_DRIVER: _NoDevice(), **classes}


class _NoDevice:
    """A driver of triton that has a target and no device."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 80, 32)

    def get_current_device(self) -> int:
        raise ExportError(
            "a Triton kernel is launched where only strict=True can trace it: pass strict=True, or launch "
            "torch.library.wrap_triton(kernel) in an operator defined with torch.library.triton_op"
        )


@contextmanager
def interpreted_kernels() -> Iterator[None]:
    """Run Triton kernels by triton's interpreter, on the CPU: an autotuned one in its first configuration.

    Does nothing if the triton package is not imported, or if there is a device.
    """
    if "triton" not in sys.modules or device_check.has_triton():
        yield
        return
    with patched({KERNEL_RUN: _run_interpreted, KERNEL_CALL: _call_interpreted, TUNER_RUN: _run_first_configuration}):
        yield


def _run_interpreted(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    from triton.runtime.interpreter import InterpretedFunction

    with patched(_bfloat16_methods()):
        return InterpretedFunction(kernel.fn).run(*args, **kwargs)


def _bfloat16_methods() -> dict[Patch, Any]:
    """Return methods of triton's interpreter that compute elements of bfloat16 in float32, and round them to even.

    The interpreter has their bits as uint16, and computes with these.
    """
    methods = {
        patch: _in_float32(patch.resolved().read(), _RESULT_AS[name])
        for name, patch in BFLOAT16_METHODS.items()
        if patch.exists()
    }
    if BFLOAT16_REDUCTIONS.exists():
        methods[BFLOAT16_REDUCTIONS] = _reduced_in_float32(BFLOAT16_REDUCTIONS.resolved().read())
    return methods


_RESULT_AS = {"binary_op": 0, "ternary_op": 2, "unary_op": 0, "create_fma": 2, "create_dot": 2, "cast_impl": None}
"""Which operand has the dtype of the result; for None, it is the second one."""


def _is_bfloat16(value: Any) -> bool:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return isinstance(value, TensorHandle) and value.dtype.scalar == tl.bfloat16


def _widened(value: Any) -> Any:
    """Return a tensor of the interpreter in float32 if it is in bfloat16."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if not _is_bfloat16(value):
        return value
    bits = np.asarray(value.data).astype(np.uint32) << 16
    return TensorHandle(np.asarray(bits).view(np.float32), tl.float32)


def _narrowed(data: Any) -> Any:
    """Return numbers as a tensor of the interpreter in bfloat16."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    floats = torch.from_numpy(np.array(data, dtype=np.float32))
    return TensorHandle(floats.bfloat16().view(torch.int16).numpy().view(np.uint16), tl.bfloat16)


def _reduced_in_float32(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``ReduceScanOpInterface.apply`` for tensors of `triton.language`, in float32 if they are in bfloat16."""
    import triton.language as tl

    def applied(operation: Any, operands: Any) -> Any:
        if not isinstance(operands, tuple) or not any(_is_bfloat16(operand.handle) for operand in operands):
            return method(operation, operands)
        wide = tuple(
            _typed(operand, _widened(operand.handle), tl.float32) if _is_bfloat16(operand.handle) else operand
            for operand in operands
        )
        results = method(operation, wide)
        return tuple(
            _typed(result, _narrowed(result.handle.data), tl.bfloat16) if _is_bfloat16(operand.handle) else result
            for operand, result in zip(operands, results, strict=True)
        )

    return applied


def _typed(like: Any, handle: Any, element: Any) -> Any:
    """Return a tensor of `triton.language` with the shape of ``like``."""
    import triton.language as tl

    return tl.core.tensor(handle, tl.block_type(element, like.type.shape) if like.type.is_block() else element)


def _in_float32(method: Callable[..., Any], result_as: int | None) -> Callable[..., Any]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def computed(builder: Any, *values: Any) -> Any:
        if result_as is None:
            source, wanted = values
            if wanted.scalar == tl.bfloat16:
                return source if _is_bfloat16(source) else _narrowed(source.data)
            return method(builder, _widened(source), wanted)
        if not any(map(_is_bfloat16, values)):
            return method(builder, *values)
        result = method(builder, *map(_widened, values))
        if not _is_bfloat16(values[result_as]):
            return result
        return TensorHandle(result.data, tl.bfloat16) if result.data.dtype == np.bool_ else _narrowed(result.data)

    return computed


def _call_interpreted(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a device function, and undo what the interpreter changes in triton.language: kernels compile afterwards."""
    from triton.runtime import interpreter

    scope = interpreter._patch_lang(function.fn)
    try:
        return interpreter.InterpretedFunction(function.fn).rewrite()(*args, **kwargs)
    finally:
        scope.restore()


def _run_first_configuration(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    return tuner.fn.run(*args, **kwargs, **tuner.configs[0].all_kwargs())

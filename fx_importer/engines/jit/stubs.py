"""Callbacks by which compiled code has PyTorch run operator stubs, and triton's interpreter its kernels."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload

from fx_importer.calls.memref import allocated, dense, describe, descriptor_type, read, view
from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import operator_named
from fx_importer.fx_graph.triton_kernel import KNOWN_KERNELS
from fx_importer.fx_graph.triton_runtime import interpreted_kernels
from fx_importer.manifest import OperatorArgument, OperatorStub, Passed, ValueType
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import functions_of
from fx_importer.rewrites.llvm.operator_stubs import STUB_SUCCEEDED, operator_stubs_of, takes_destinations

_READ_ONLY = ("aten", "prims")
"""Namespaces whose functional operators neither write to their arguments nor keep them."""
_NUMBERS = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}


class Stubs:
    """The callbacks of operator stubs. They have to outlive the compiled code."""

    def __init__(self, module: ir.Module, instead: Mapping[str, Callable[..., Any]] = MappingProxyType({})):
        """Make the callbacks of ``module``, before bufferization; ``instead`` has replacements of operators by name."""
        stubs = operator_stubs_of(module)
        functions = functions_of(module)
        self._failed = threading.local()  # a function may run in several threads
        self.callbacks: dict[str, Any] = {
            f"_mlir_ciface_{name}": self._callback(stub, functions[name].type, instead.get(stub.operator))
            for name, stub in stubs.items()
        }
        """Callbacks by symbol."""
        if stubs:
            self.callbacks[STUB_SUCCEEDED] = ctypes.CFUNCTYPE(ctypes.c_bool)(lambda: self._failure() is None)

    def _failure(self) -> tuple[str, Exception] | None:
        return getattr(self._failed, "failure", None)

    def take_failure(self) -> tuple[str, Exception] | None:
        """Return, and reset, the operator that failed in the last run and its exception."""
        failure, self._failed.failure = self._failure(), None
        return failure

    def _callback(self, stub: OperatorStub, kind: ir.FunctionType, instead: Callable[..., Any] | None) -> Any:
        call = operator_function(stub, instead)
        placed = takes_destinations(kind)
        in_place = instead is None and stub.operator.partition(".")[0] in _READ_ONLY
        takes = [*zip(stub.takes, map(_rank, kind.inputs), strict=True)]
        returns = [*zip([returned.type for returned in stub.returns], map(_rank, kind.results), strict=True)]

        write = _writing_function(stub) if placed and in_place else None
        count = len(takes)

        def callback(*addresses: int) -> None:
            try:
                results, arguments = (addresses[count:], addresses) if placed else (addresses[:1], addresses[1:])
                pairs = zip(arguments, takes, strict=False)
                passed = [_read_argument(address, *kind, in_place) for address, kind in pairs]
                if write is not None:
                    write(
                        passed, [_read_argument(at, *result, True) for at, result in zip(results, returns, strict=True)]
                    )
                    return
                result = call(passed)
                if placed:
                    _fill_in(results, result, returns)
                else:
                    _write_results(results[0], result, returns)
            except Exception as error:  # must not propagate through compiled code, which calls STUB_SUCCEEDED
                self._failed.failure = stub.operator, error

        passed = count + (len(returns) if placed else 1)
        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * passed)(callback)


def _rank(kind: ir.Type) -> int:
    return ir.RankedTensorType(kind).rank


def operator_function(stub: OperatorStub, instead: Callable[..., Any] | None = None) -> Any:
    """Return a function that calls the operator of ``stub``, or ``instead``.

    It takes a value for each argument of the stub's function, and returns a tensor for each result.

    Raises:
        UsageError: if this process lacks the operator. The function raises it for results of other types.
    """
    run = kernel_function(stub) if stub.kernel is not None else _overload_function(stub, instead)

    def call(arguments: Sequence[Any]) -> list[torch.Tensor]:
        with torch.no_grad():
            result = run([_argument_value(argument, arguments) for argument in stub.arguments])
        results = []
        for returned in stub.returns:
            value = result
            for index in returned.path:
                value = value[index]
            results.append(_checked_result(value, returned.type, stub.operator))
        return results

    return call


def _overload_function(stub: OperatorStub, instead: Callable[..., Any] | None) -> Callable[[Sequence[Any]], Any]:
    """Return a function that calls the operator of ``stub``, or ``instead``, with the arguments in a list."""
    overload = operator_named(stub.operator)
    if overload is None and instead is not None:  # no operator of torch
        return lambda values: instead(*values)
    if not isinstance(overload, OpOverload):
        raise UsageError(
            f"the module calls torch.ops.{stub.operator}, which is not registered in this process: import what defines "
            "it"
        )
    parameters = overload._schema.arguments

    def run(values: Sequence[Any]) -> Any:
        pairs = [*zip(parameters, values, strict=True)]
        return (instead or overload)(
            *(value for parameter, value in pairs if not parameter.kwarg_only),
            **{parameter.name: value for parameter, value in pairs if parameter.kwarg_only},
        )

    return run


def _writing_function(stub: OperatorStub) -> Callable[[Sequence[Any], Sequence[torch.Tensor]], None] | None:
    """Return a function that has the operator of ``stub`` write its results to given tensors.

    None if it has no kernel for CPUs that does: the overload that torch generates computes new ones, and copies them.
    """
    overload = operator_named(stub.operator)
    if not isinstance(overload, OpOverload) or any("complex" in returned.type.dtype for returned in stub.returns):
        return None
    results = overload._schema.returns
    if [returned.path for returned in stub.returns] != (
        [()] if len(results) == 1 else [(i,) for i in range(len(results))]
    ):
        return None
    parameters = [(argument.name, str(argument.type)) for argument in overload._schema.arguments]
    for name in overload.overloadpacket.overloads():
        writing: OpOverload = getattr(overload.overloadpacket, name)
        outs = [argument.name for argument in writing._schema.arguments if argument.is_out]
        others = [(argument.name, str(argument.type)) for argument in writing._schema.arguments if not argument.is_out]
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(writing.name(), "CPU")
        if len(outs) == len(results) and others == parameters and has_kernel:
            return partial(_write_in_place, stub, writing, outs)
    return None


def _write_in_place(
    stub: OperatorStub,
    writing: OpOverload,
    outs: Sequence[str],
    arguments: Sequence[Any],
    results: Sequence[torch.Tensor],
) -> None:
    """Call ``writing``, whose arguments named ``outs`` are ``results``."""
    before = [(result.data_ptr(), result.shape) for result in results]
    run = _overload_function(stub, partial(writing, **dict(zip(outs, results, strict=True))))
    with torch.no_grad():
        run([_argument_value(argument, arguments) for argument in stub.arguments])
    if before != [(result.data_ptr(), result.shape) for result in results]:
        raise UsageError(f"{stub.operator} returned other sizes than the program was lowered for")


def _argument_value(argument: OperatorArgument, arguments: Sequence[Any]) -> Any:
    if isinstance(argument, tuple):
        return [_argument_value(item, arguments) for item in argument]
    return arguments[argument.argument] if isinstance(argument, Passed) else argument


def _checked_result(value: Any, kind: ValueType, operator: str) -> torch.Tensor:
    """Return ``value`` if it has the type that compiled code assumes. Raises `UsageError` otherwise."""
    shape = kind.shape or ()
    met = (str(value.dtype).removeprefix("torch."), tuple(value.shape)) if isinstance(value, torch.Tensor) else value
    fits = isinstance(met, tuple) and len(met[1]) == len(shape) and met[0] == kind.dtype
    if not fits or any(size not in ("?", there) for size, there in zip(shape, met[1], strict=True)):
        returned = f"{met[0]}{list(met[1])}" if isinstance(met, tuple) else type(value).__name__
        wanted = f"{kind.dtype}[{', '.join(map(str, shape))}]"
        raise UsageError(f"{operator} returned {returned}, but the program was lowered for {wanted}")
    return value


def _read_argument(address: int, kind: ValueType, rank: int, in_place: bool) -> Any:
    """Return the tensor with the descriptor at ``address``; a scalar if the model has one there.

    It is a copy, unless it is to be read ``in_place``, for the time of the call.

    If the rank is one more than in the model, the tensor is complex, passed as real and imaginary parts.
    """
    descriptor = descriptor_type(rank).from_address(address)
    if kind.shape is None:
        return read(descriptor, _NUMBERS[kind.dtype]).item()
    dtype: torch.dtype = getattr(torch, kind.dtype)
    get = view if in_place else read
    if rank > len(kind.shape):
        return torch.view_as_complex(get(descriptor, dtype.to_real()))
    return get(descriptor, dtype)


def _fill_in(addresses: Sequence[int], tensors: Sequence[torch.Tensor], kinds: Sequence[tuple[ValueType, int]]) -> None:
    """Write ``tensors`` to the memory of the descriptors at ``addresses``."""
    for address, tensor, (kind, rank) in zip(addresses, tensors, kinds, strict=True):
        passed = torch.view_as_real(tensor.resolve_conj()) if rank > len(kind.shape or ()) else tensor
        view(descriptor_type(rank).from_address(address), passed.dtype).copy_(passed)


def _write_results(address: int, tensors: Sequence[torch.Tensor], kinds: Sequence[tuple[ValueType, int]]) -> None:
    """Write descriptors of copies of ``tensors``, which the compiled code frees, to ``address``, in order."""
    for tensor, (kind, rank) in zip(tensors, kinds, strict=True):
        passed = torch.view_as_real(dense(tensor)) if rank > len(kind.shape or ()) else tensor
        described = describe(allocated(dense(passed)), passed.shape)
        ctypes.memmove(address, described, ctypes.sizeof(described))
        address += ctypes.sizeof(described)


def kernel_function(stub: OperatorStub) -> Callable[[Sequence[Any]], list[torch.Tensor]]:
    """Return a function that launches the kernel of ``stub`` in its first variant, and returns what it writes.

    It takes the arguments of the stub in a list, and writes to copies of them.

    Raises:
        UsageError: if no program that was lowered in this process launches the kernel.
    """
    launch, known = stub.kernel, KNOWN_KERNELS.get(stub.to_json())
    assert launch is not None
    if known is None:
        raise UsageError(
            f"the module launches {stub.operator}, a Triton kernel that this process does not know: lower the model in "
            "this process"
        )

    def run(arguments: Sequence[Any]) -> list[torch.Tensor]:
        grid, *others = arguments[0], *arguments[len(launch.variants) :]
        values = dict(zip(launch.parameters, others, strict=True))
        for name in launch.writes:
            values[name] = values[name].clone()
        with interpreted_kernels():
            known.function[tuple(grid)](**values, **known.constants)
        return [values[name] for name in launch.writes]

    return run

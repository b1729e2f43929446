"""PyTorch runs what the compiled code of a module lacks: functions that are declared for operators, and not defined."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload

from fx_importer.errors import UsageError
from fx_importer.execution.memref import allocated, dense, describe, descriptor_type, read
from fx_importer.execution.module_functions import functions_of
from fx_importer.fx_graph.operators import operator_named
from fx_importer.manifest import STUB_ATTRIBUTE, OperatorArgument, OperatorStub, Passed, ValueType
from fx_importer.mlir.bindings import func_d, ir

FINE = "__fx_importer_fine"
"""The function that says, right after a call of an operator, whether it returned."""

_NUMBERS = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}


def operator_stubs_of(module: ir.Module) -> dict[str, OperatorStub]:
    """Return what the functions stand for that ``module`` declares for operators, by name."""
    return {
        name: OperatorStub.from_json(ir.StringAttr(function.attributes[STUB_ATTRIBUTE]).value)
        for name, function in functions_of(module).items()
        if STUB_ATTRIBUTE in function.attributes
    }


def declare_operator_stubs(module: ir.Module) -> None:
    """Say of the functions that stand for operators, on tensors, how they are called, and that they only read."""
    for function in functions_of(module).values():
        if STUB_ATTRIBUTE in function.attributes:
            _declare(function)


def _declare(function: func_d.FuncOp) -> None:
    with function.context:
        function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        read_only = ir.DictAttr.get({"bufferization.access": ir.StringAttr.get("read")})
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([read_only] * len(function.type.inputs))


class Stubs:
    """What compiled code calls for operators. It has to live as long as the code."""

    def __init__(self, module: ir.Module, instead: Mapping[str, Callable[..., Any]] = MappingProxyType({})):
        """``module`` is on tensors still. ``instead`` of operators, by name, other functions run."""
        stubs = operator_stubs_of(module)
        functions = functions_of(module)
        self._failure: tuple[str, Exception] | None = None
        self.callbacks: dict[str, Any] = {
            f"_mlir_ciface_{name}": self._callback(stub, functions[name].type, instead.get(stub.operator))
            for name, stub in stubs.items()
        }
        """By symbol."""
        if stubs:
            self.callbacks[FINE] = ctypes.CFUNCTYPE(ctypes.c_bool)(lambda: self._failure is None)

    def taken(self) -> tuple[str, Exception] | None:
        """Return the operator that failed in the last run, and what it raised, and forget it."""
        failure, self._failure = self._failure, None
        return failure

    def _callback(self, stub: OperatorStub, kind: ir.FunctionType, instead: Callable[..., Any] | None) -> Any:
        call = prepared(stub, instead)
        takes = [*zip(stub.takes, map(_rank, kind.inputs), strict=True)]
        returns = [*zip([each.type for each in stub.returns], map(_rank, kind.results), strict=True)]

        def callback(results: int, *arguments: int) -> None:
            try:
                given = [_given(address, *each) for address, each in zip(arguments, takes, strict=True)]
                _give(results, call(given), returns)
            except Exception as error:  # must not cross the compiled code, which asks for it
                self._failure = stub.operator, error

        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(takes)))(callback)


def _rank(kind: ir.Type) -> int:
    return ir.RankedTensorType(kind).rank


def prepared(stub: OperatorStub, instead: Callable[..., Any] | None = None) -> Any:
    """Return what calls the operator, or another function ``instead``, with a value for each argument of the stub's
    function, and returns a tensor for each result.

    Raises:
        UsageError: if there is no such operator in this process; so does a call whose results are of other types.
    """
    overload = operator_named(stub.operator)
    if not isinstance(overload, OpOverload):
        raise UsageError(
            f"the module calls torch.ops.{stub.operator}, which is not registered in this process: import what defines "
            "it"
        )
    parameters = overload._schema.arguments

    def call(given: Sequence[Any]) -> list[torch.Tensor]:
        values = [_filled(each, given) for each in stub.arguments]
        pairs = [*zip(parameters, values, strict=True)]
        with torch.no_grad():
            found = (instead or overload)(
                *(value for parameter, value in pairs if not parameter.kwarg_only),
                **{parameter.name: value for parameter, value in pairs if parameter.kwarg_only},
            )
        results = []
        for each in stub.returns:
            value = found
            for index in each.path:
                value = value[index]
            results.append(_checked(value, each.type, stub.operator))
        return results

    return call


def _filled(argument: OperatorArgument, given: Sequence[Any]) -> Any:
    if isinstance(argument, tuple):
        return [_filled(each, given) for each in argument]
    return given[argument.argument] if isinstance(argument, Passed) else argument


def _checked(value: Any, kind: ValueType, operator: str) -> torch.Tensor:
    """Return ``value`` if it is what compiled code was made for, which reads it unseen."""
    shape = kind.shape or ()
    met = (str(value.dtype).removeprefix("torch."), tuple(value.shape)) if isinstance(value, torch.Tensor) else value
    fits = isinstance(met, tuple) and len(met[1]) == len(shape) and met[0] == kind.dtype
    if not fits or any(size not in ("?", there) for size, there in zip(shape, met[1], strict=True)):
        said = f"{met[0]}{list(met[1])}" if isinstance(met, tuple) else type(value).__name__
        wanted = f"{kind.dtype}[{', '.join(map(str, shape))}]"
        raise UsageError(f"{operator} returned {said}, but the program was lowered for {wanted}")
    return value


def _given(address: int, kind: ValueType, rank: int) -> Any:
    """Return a copy of the tensor whose descriptor lies at ``address``; a number, of a tensor that stands for one.

    One more than the axes that it has in the model are those of a complex tensor and its two parts.
    """
    descriptor = descriptor_type(rank).from_address(address)
    if kind.shape is None:
        return read(descriptor, _NUMBERS[kind.dtype]).item()
    dtype: torch.dtype = getattr(torch, kind.dtype)
    if rank > len(kind.shape):
        return torch.view_as_complex(read(descriptor, dtype.to_real()))
    return read(descriptor, dtype)


def _give(address: int, tensors: Sequence[torch.Tensor], kinds: Sequence[tuple[ValueType, int]]) -> None:
    """Write descriptors of copies of ``tensors``, which the compiled code frees, one after another to ``address``."""
    for tensor, (kind, rank) in zip(tensors, kinds, strict=True):
        passed = torch.view_as_real(dense(tensor)) if rank > len(kind.shape or ()) else tensor
        described = describe(allocated(dense(passed)), passed.shape)
        ctypes.memmove(address, described, ctypes.sizeof(described))
        address += ctypes.sizeof(described)

"""Signatures of compiled functions, read from their types, and argument checks."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_importer.calls.memref import Descriptor, descriptor_type
from fx_importer.calls.recurring_calls import PLAIN
from fx_importer.calls.state import OnDevice
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.dtypes import DTYPES, UNSIGNED
from fx_importer.mlir.functions import checks_assumptions, state_aliases
from fx_importer.mlir.tensor_elements import missing_values
from fx_importer.mlir.types import TorchTensor

HOST, _META = torch.device("cpu"), torch.device("meta")


@dataclass(frozen=True)
class TensorKind:
    """A tensor with one of ``dtypes``; None in ``shape`` is a dynamic size."""

    dtypes: tuple[torch.dtype, ...]
    shape: tuple[int | None, ...]
    written: bool = False
    """Whether the function writes to the argument, a memref."""

    @property
    def ctype(self) -> type[Descriptor]:
        return descriptor_type(len(self.shape))

    def mismatch(self, value: object, device: torch.device = HOST, host: bool = True) -> str | None:
        """Return why ``value`` does not fit; None if it does. It is on ``device``, or, with ``host``, on the CPU.

        A tensor of rank 0 may always be on the CPU, as for PyTorch's operators.
        """
        if not isinstance(value, torch.Tensor):
            return f"is of type {type(value).__name__}, but the function takes {self}"
        if not host and value.device == HOST and value.dim():
            return f"is on cpu, but the function takes tensors on {device}: pass it with `.to('{device}')`"
        if value.device not in (HOST, _META, device) and type(value) in PLAIN:
            if not host:
                return f"is on {value.device}, but the function takes tensors on {device}"
            if device != HOST:
                return f"is on {value.device}, but the function takes tensors on {device} or the CPU"
            return f"is on {value.device}, but the function takes tensors on the CPU: pass it with `.cpu()`"
        if value.layout is not torch.strided or value.device == _META or type(value) not in PLAIN:
            met = f"{type(value).__name__} ({value.layout}) on {value.device}"
            return f"is {met}, but the function takes dense tensors on the CPU"
        if problem := missing_values(value):
            return problem
        if value.dtype not in self.dtypes:
            return f"is {_spelled((value.dtype,))}, but the function takes {_spelled(self.dtypes)}"
        fits = value.dim() == len(self.shape) and all(
            accepted in (None, met) for accepted, met in zip(self.shape, value.shape, strict=True)
        )
        return None if fits else f"has shape {_shape(tuple(value.shape))}, but the function takes {_shape(self.shape)}"

    def __str__(self) -> str:
        return f"a tensor of {_spelled(self.dtypes)} with shape {_shape(self.shape)}"


@dataclass(frozen=True)
class ScalarKind:
    """A scalar passed outside a tensor."""

    python: type[bool] | type[int] | type[float]
    ctype: type[ctypes.c_bool] | type[ctypes.c_int64] | type[ctypes.c_double]

    def mismatch(self, value: Any) -> str | None:
        """Return why ``value`` does not fit; None if it does."""
        if type(value) is not self.python and not (self.python is float and type(value) is int):
            return f"is of type {type(value).__name__}, but the function takes {self}"
        if self.python is int and not -(2**63) <= value < 2**63:
            return f"is {value}, but the function takes {self}"
        return None

    def __str__(self) -> str:
        return {bool: "a bool", int: "an int of 64 bits", float: "a float"}[self.python]


Kind = TensorKind | ScalarKind

IN_STABLEHLO = {name: dtypes for name, dtypes in DTYPES.items() if name != "complex<f16>"} | UNSIGNED
"""Dtypes of StableHLO's element types."""

_SCALARS = {
    "i1": ScalarKind(bool, ctypes.c_bool),
    "i64": ScalarKind(int, ctypes.c_int64),
    "f64": ScalarKind(float, ctypes.c_double),
}


@dataclass(frozen=True)
class Signature:
    """The arguments and results of a function, in order."""

    name: str
    arguments: tuple[Kind, ...]
    results: tuple[Kind, ...]
    names: tuple[str | None, ...] = ()
    """Argument names in the program; None for an argument without a name."""
    aliases: Mapping[int, int] = field(default_factory=dict[int, int])
    """Maps each result that is a new state value to the argument with the old value, by position."""
    keeps_state: bool = False
    """Whether a call may fail after it has computed new state, so that the old values are kept until it has not."""
    device: torch.device = HOST
    """The device whose tensors the function takes."""
    host: bool = True
    """Whether it takes those of the CPU too."""

    def written(self, position: int) -> bool:
        """Whether the function writes to the argument at ``position``."""
        kind = self.arguments[position]
        return isinstance(kind, TensorKind) and kind.written

    def _mismatch(self, kind: Kind, value: object) -> str | None:
        tensor = isinstance(kind, TensorKind)
        return kind.mismatch(value, self.device, self.host) if tensor else kind.mismatch(value)

    def check(self, values: Sequence[object]) -> None:
        """Raise `UsageError` listing every argument that does not fit."""
        if len(values) != len(self.arguments):
            raise UsageError(f"'{self.name}' takes {len(self.arguments)} arguments, but got {len(values)}")
        names = self.names or (None,) * len(self.arguments)
        mismatches = [
            f"argument {position} {f'({name!r}) ' if (name := names[position]) else ''}{mismatch}"
            for position, (kind, value) in enumerate(zip(self.arguments, values, strict=True))
            if not isinstance(value, OnDevice) and (mismatch := self._mismatch(kind, value))
        ]
        if mismatches:
            raise UsageError(f"'{self.name}' cannot be called like this: " + "; ".join(mismatches))


@dataclass(frozen=True)
class CallingConvention:
    """The types that a backend passes between Python and a function."""

    runner: str
    """The backend's name, capitalized to begin a sentence."""
    output_type: str
    """The output type that the backend runs."""
    dtypes: Mapping[str, tuple[torch.dtype, ...]] = field(default_factory=lambda: DTYPES)
    scalars: bool = False
    torch_dialect: bool = False
    """Whether ``!torch.vtensor`` is accepted too."""


JIT = CallingConvention("The JIT", "linalg-on-tensors", scalars=True)


def read_signature(function: func_d.FuncOp, convention: CallingConvention = JIT) -> Signature:
    """Return the signature of ``function``.

    Raises:
        UsageError: listing every unsupported type of an argument or a result.
    """
    name = function.name.value
    kinds: dict[str, list[Kind]] = {}
    strange: list[str] = []
    for role, types in (("argument", function.type.inputs), ("result", function.type.results)):
        types_ = [_kind(type_, convention) for type_ in types]
        strange += [f"{role} {i} is {types[i]}" for i, kind in enumerate(types_) if kind is None]
        kinds[role] = [kind for kind in types_ if kind is not None]
    if strange:
        scalars = f", and scalars of {', '.join(_SCALARS)}" if convention.scalars else ", and no scalars"
        raise UsageError(
            f"'{name}' cannot be run: {'; '.join(strange)}. {convention.runner} passes builtin tensors of "
            f"{', '.join(convention.dtypes)}{scalars}: lower the program with "
            f"output_type='{convention.output_type}'"
        )
    aliases = state_aliases(function)
    keeps_state = bool(aliases) and checks_assumptions(function)
    arguments, results = tuple(kinds["argument"]), tuple(kinds["result"])
    return Signature(name, arguments, results, _names(function), aliases, keeps_state)


def _names(function: func_d.FuncOp) -> tuple[str | None, ...]:
    if "arg_attrs" not in function.attributes:
        return ()

    def name(attributes: ir.DictAttr) -> str | None:
        keys = [key for key in ("fx_importer.name", "fx_importer.state", "fx_importer.weight") if key in attributes]
        return ir.StringAttr(attributes[keys[0]]).value if keys else None

    return tuple(name(ir.DictAttr(attributes)) for attributes in ir.ArrayAttr(function.attributes["arg_attrs"]))


def _kind(mlir_type: ir.Type, convention: CallingConvention) -> Kind | None:
    if convention.torch_dialect and (tensor := TorchTensor.read(mlir_type)) and not tensor.mutable:
        dtypes = convention.dtypes.get(tensor.element.removeprefix("s"))
        return TensorKind(dtypes, tensor.shape) if dtypes else None
    memory = isinstance(mlir_type, ir.MemRefType)
    if not memory and not isinstance(mlir_type, ir.RankedTensorType):
        return _SCALARS.get(str(mlir_type)) if convention.scalars else None
    dtypes = convention.dtypes.get(str(mlir_type.element_type))
    if dtypes is None or (not memory and mlir_type.encoding is not None):
        return None
    shape = (None if mlir_type.is_dynamic_dim(axis) else mlir_type.get_dim_size(axis) for axis in range(mlir_type.rank))
    return TensorKind(dtypes, tuple(shape), memory)


def _spelled(dtypes: Sequence[torch.dtype]) -> str:
    return " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def _shape(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"

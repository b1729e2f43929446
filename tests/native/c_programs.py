"""C source of lowered programs, compiled by the C compiler of this machine and called with tensors."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fx_importer import Lowered
from fx_importer.native.abi import EntryPoint, Value
from fx_importer.native.build import Built
from fx_importer.native.library import inputs_of, outputs_of
from fx_importer.symbolic.expressions import LinearSize

COMPILER = shutil.which("gcc") or shutil.which("cc")
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def build_c(lowered: Lowered, folder: Path, name: str = "net", flags: Sequence[str] = ("-O1",)) -> tuple[Built, Path]:
    """Write C source, and compile it to a shared library; return its path."""
    assert COMPILER is not None
    built = lowered.build(folder / name, kind="c")
    library = folder / f"{name}.so"
    command = [COMPILER, *STRICT, *flags, "-shared", "-fPIC", "-o", library, folder / f"{name}.c", "-lm"]
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[:4000]
    return built, library


class Program:
    """The functions of a library with memory for their calls."""

    def __init__(self, built: Built, path: Path) -> None:
        self._library, self._code = built.library, ctypes.CDLL(str(path))
        self._state = _memory(self._library.state_bytes) if self._library.state else None
        if self._state is not None:
            pointer = ctypes.c_void_p()
            create = self._function("create")
            assert not create(_address(self._state), ctypes.c_size_t(self._state.nbytes), ctypes.byref(pointer))

    def _function(self, name: str) -> Any:
        return getattr(self._code, f"{self._library.name}_{name}")

    def call(self, *inputs: Any, entry: int = 0) -> tuple[int, list[Tensor]]:
        """Return the status and the results."""
        point = self._library.entries[entry]
        tensors = [_dense(value, given) for value, given in zip(inputs_of(point), inputs, strict=True)]
        sizes = _sizes(point, tensors)
        numbers = [ctypes.c_int64(sizes[size.name]) for size in point.sizes]
        if point.dimensions:
            arena_bytes = self._function(f"{point.c_name}_arena_bytes")
            arena_bytes.restype = ctypes.c_size_t
            arena = _memory(int(arena_bytes(*numbers)))
        else:
            arena = _memory(point.arena)
        outputs = [_output(value, sizes) for value in outputs_of(point)]
        passed: list[Any] = [] if self._state is None or not _has_state(point) else [_address(self._state)]
        passed += numbers
        for value, tensor in zip(inputs_of(point), tensors, strict=True):
            passed.append(_address(tensor) if isinstance(tensor, Tensor) else _number(value, tensor))
        passed += [_address(output) for output in outputs]
        status = self._function(point.c_name)(*passed, _address(arena), ctypes.c_size_t(arena.nbytes))
        return status, outputs


def run_c(lowered: Lowered, inputs: Sequence[Any], folder: Path, flags: Sequence[str] = ("-O1",)) -> list[Tensor]:
    """Return the results of ``main``, of inputs in the order of the code."""
    built, path = build_c(lowered, folder, flags=flags)
    status, outputs = Program(built, path).call(*inputs)
    assert status == 0
    return outputs


def _has_state(point: EntryPoint) -> bool:
    return any(value.kind == "state" for value in point.arguments)


def _dtype(value: Value) -> torch.dtype:
    return getattr(torch, value.dtype)


def _dense(value: Value, given: Any) -> Any:
    if not isinstance(given, Tensor) or value.shape is None:
        return given
    given = given.detach().resolve_conj().resolve_neg().contiguous()
    if value.dtype in ("float32", "float64") and given.is_complex():
        given = torch.view_as_real(given).contiguous()
    return given.to(_dtype(value)).contiguous().clone()


def _sizes(point: EntryPoint, tensors: Sequence[Any]) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for value, tensor in zip(inputs_of(point), tensors, strict=True):
        for axis, size in enumerate(value.shape or ()):
            linear = LinearSize.read(size) if isinstance(size, str) else None
            if linear is not None and (number := linear.solve(tensor.shape[axis])) is not None:
                sizes[linear.symbol] = number
    return sizes


def _output(value: Value, sizes: Mapping[str, int]) -> Tensor:
    shape = [eval(size, dict(sizes)) if isinstance(size, str) else size for size in value.shape or ()]
    return torch.zeros(shape, dtype=_dtype(value))


def _number(value: Value, given: Any) -> Any:
    return {"int": ctypes.c_int64, "float": ctypes.c_double, "bool": ctypes.c_bool}.get(value.dtype, ctypes.c_int64)(
        given
    )


def _memory(nbytes: int) -> Tensor:
    """Return uninitialized memory, aligned to 64 bytes."""
    block = torch.full((nbytes + 64,), 0xA5, dtype=torch.uint8)
    start = -block.data_ptr() % 64
    return block[start : start + nbytes]


def _address(tensor: Tensor) -> ctypes.c_void_p:
    empty = torch.zeros(1)
    return ctypes.c_void_p(tensor.data_ptr() or empty.data_ptr())

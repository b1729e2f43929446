"""Calls of libraries of native code from Python, as a C program makes them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fx_importer.native.abi import EntryPoint, Value
from fx_importer.native.build import Built
from fx_importer.native.library import ALIGNMENT, Library, has_state, inputs_of, outputs_of
from fx_importer.results.lowered import Lowered
from fx_importer.symbolic.expressions import LinearSize, SizeExpression

_NUMBERS = {"int": ctypes.c_int64, "float": ctypes.c_double, "bool": ctypes.c_bool}
_STRUCTURES = {2: torch.complex32, 4: torch.complex64, 8: torch.complex128}


class StatusError(Exception):
    """A function returned another status than 0."""

    def __init__(self, status: int, text: str):
        super().__init__(f"{status}: {text}")
        self.status = status


class NativeCaller:
    """The functions of a shared library, with a state."""

    def __init__(self, lowered: Lowered, built: Built, weights: ctypes.c_void_p | None = None):
        self.library: Library = built.library
        self.code = ctypes.CDLL(str(built.files[0]))
        self._functions = lowered.manifest.functions
        self._weights = weights
        getattr(self.code, f"{self.library.name}_status_text").restype = ctypes.c_char_p
        self._memory = aligned_memory(self.library.state_bytes)
        self.state = ctypes.c_void_p()
        if self.library.state:
            given = [weights] if self.library.takes_weights else []
            self.check(
                self._named("create")(
                    *given,
                    ctypes.c_void_p(self._memory.data_ptr()),
                    ctypes.c_size_t(self._memory.numel()),
                    ctypes.byref(self.state),
                )
            )

    def _named(self, name: str) -> Any:
        return getattr(self.code, f"{self.library.name}_{name}")

    def check(self, status: int) -> None:
        """Raise `StatusError` unless ``status`` is 0."""
        if status:
            text: bytes = self._named("status_text")(status)
            raise StatusError(status, text.decode())

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Call the first function with the inputs of the model; return its outputs in order, and mutate inputs."""
        return self.call(self.library.entries[0], args, kwargs)

    def call(self, entry: EntryPoint, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Call ``entry``."""
        leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
        described = [each for each in self._functions[entry.function].arguments if each.kind == "input"]
        inputs = [
            _dense(leaves[each.leaf or 0], value) for each, value in zip(described, inputs_of(entry), strict=True)
        ]
        numbers = _sizes(entry, inputs)
        outputs = [
            torch.empty([_size(size, numbers) for size in value.shape or ()], dtype=native_dtype(value))
            for value in outputs_of(entry)
        ]
        arena_bytes = self.arena_bytes(entry, numbers)
        arena = aligned_memory(arena_bytes)
        passed: list[Any] = [self.state] if has_state(entry) else []
        passed += [self._weights] if self.library.takes_weights else []
        passed += [ctypes.c_int64(numbers[size.name]) for size in entry.sizes]
        for value, tensor in zip(inputs_of(entry), inputs, strict=True):
            passed.append(_NUMBERS[value.dtype](tensor) if value.shape is None else _address(tensor))
        passed += [*map(_address, outputs), _address(arena), ctypes.c_size_t(arena_bytes)]
        self.check(self._named(entry.c_name)(*passed))
        for each, tensor in zip(described, inputs, strict=True):
            if each.overwritten:
                leaves[each.leaf or 0].copy_(tensor)
        names = {each.name: each.leaf or 0 for each in described}
        for value, tensor in zip(outputs_of(entry), outputs, strict=True):
            if value.kind == "input":
                leaves[names[value.name]].copy_(tensor)
        return [tensor for value, tensor in zip(outputs_of(entry), outputs, strict=True) if value.kind != "input"]

    def prepared(self, args: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        """Return a call of the first function, of static sizes and without state, in memory that is there already."""
        entry = self.library.entries[0]
        inputs = [_dense(leaf, value) for leaf, value in zip(args, inputs_of(entry), strict=True)]
        outputs = [torch.empty([int(size) for size in v.shape or ()], dtype=native_dtype(v)) for v in outputs_of(entry)]
        arena, function = aligned_memory(entry.arena), self._named(entry.c_name)
        passed = [*map(_address, [*inputs, *outputs, arena]), ctypes.c_size_t(entry.arena)]

        def call() -> list[torch.Tensor]:
            _ = inputs, arena  # alive
            self.check(function(*passed))
            return outputs

        return call

    def arena_bytes(self, entry: EntryPoint, numbers: Mapping[str, int]) -> int:
        """Return the bytes of the arena."""
        if not entry.dimensions:
            return entry.arena
        function = self._named(f"{entry.c_name}_arena_bytes")
        function.restype = ctypes.c_size_t
        return int(function(*(ctypes.c_int64(numbers[size.name]) for size in entry.sizes)))


def aligned_memory(nbytes: int) -> torch.Tensor:
    """Return bytes that begin where the arena may begin."""
    memory = torch.full((nbytes + ALIGNMENT,), 0xA5, dtype=torch.uint8)
    start = -memory.data_ptr() % ALIGNMENT
    return memory[start : start + nbytes]


def _address(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr() or ALIGNMENT)  # of an empty tensor: any address but NULL


def _dense(leaf: Any, value: Value) -> Any:
    if value.shape is None:
        return leaf
    tensor = leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)
    return tensor.detach().resolve_conj().resolve_neg().contiguous().to(native_dtype(value)).clone()


def native_dtype(value: Value) -> torch.dtype:
    """Return the dtype of the elements that C sees."""
    return getattr(torch, {"int": "int64", "float": "float64"}.get(value.dtype, value.dtype))


def _sizes(entry: EntryPoint, inputs: Sequence[Any]) -> dict[str, int]:
    """Return the sizes that ``entry`` takes, of the shapes of ``inputs``."""
    found: dict[str, int] = {}
    for value, tensor in zip(inputs_of(entry), inputs, strict=True):
        for expression, size in zip(value.shape or (), getattr(tensor, "shape", ()), strict=False):
            linear = LinearSize.read(expression) if isinstance(expression, str) else None
            if linear is not None and (number := linear.solve(size)) is not None:
                found.setdefault(linear.symbol, number)
    return found


def _size(size: int | str, numbers: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else int(SizeExpression(size).value(numbers) or 0)

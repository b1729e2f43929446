"""Calls of compiled functions: arguments and results are memref descriptors in memory that every call uses again."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch._C._dynamo.guards import _empty_strided_cpu  # pyright: ignore[reportAttributeAccessIssue]: not in its stub

from fx_importer.calls.backend import Value
from fx_importer.calls.call_signature import Kind, ScalarKind, Signature, TensorKind
from fx_importer.calls.memref import adopt, dense, describe
from fx_importer.calls.recurring_calls import PLAIN, RecurringCall
from fx_importer.diagnostics.assumption_messages import violation_in
from fx_importer.errors import UsageError
from fx_importer.mlir.tensor_elements import missing_values

_WORD = ctypes.sizeof(ctypes.c_int64)
_HEADER = 3
"""Words of a descriptor before its sizes: allocated pointer, aligned pointer, offset."""


class CompiledFunction:
    """Compiled code, called with dense tensors on the CPU and scalars, and what has to outlive it.

    The descriptors of all arguments and results are in one block. Sizes that are static are written once; a call
    writes addresses, and dynamic sizes. Calls from several threads are serialized.

    Args:
        signature: of the function.
        memory: the tensors that the function takes after its arguments: constants, and memory for buffers.
        placed: the positions of the results for which the function takes memory, as its last arguments.
        messages: of the errors that the function may end with, by its code less one.
        entry: takes the address of an array of addresses of variables: ``function``, the address of its arguments, the
            number of descriptors, the address of their addresses, the address of the tensors' addresses, the error
            code.
        function: the address of the function. It takes an array of addresses: of each argument, and of memory for its
            results.
        take_failure: returns the name and the error of a Python function that the code called, if one raised; None if
            it calls none.
        keep: what has to live as long as the code.
    """

    def __init__(
        self,
        signature: Signature,
        memory: Sequence[torch.Tensor],
        placed: Sequence[int],
        messages: Sequence[str],
        entry: Callable[[int], None],
        function: ctypes.c_void_p,
        take_failure: Callable[[], tuple[str, BaseException] | None] | None,
        keep: tuple[object, ...],
    ):
        self.signature = signature
        self.messages = tuple(messages)
        self._entry = entry
        self._take_failure = take_failure
        self._lock = threading.Lock()
        # Values of results, then descriptors of arguments and memory, one after the other.
        returned = [kind for i, kind in enumerate(signature.results) if i not in placed]
        new = [kind for i in placed if isinstance(kind := signature.results[i], TensorKind)]
        self._new = [_allocation(kind) for kind in new]
        kinds = (
            *signature.arguments,
            *(TensorKind((tensor.dtype,), tuple(tensor.shape)) for tensor in memory),
            *[_VALUE] * len(returned),
            *new,
        )
        offsets = [0]
        for kind in (*returned, *kinds):
            offsets.append(offsets[-1] + -(-ctypes.sizeof(kind.ctype) // _WORD) * _WORD)
        block = (ctypes.c_int64 * (offsets[-1] // _WORD))()
        values, offsets = offsets[: len(returned)], offsets[len(returned) : -1]
        places = iter(map(_place, returned, [block] * len(returned), values))
        self._results = [_PLACED if i in placed else next(places) for i in range(len(signature.results))]
        self._adopted = [result for result in self._results if isinstance(result, _TensorPlace)]
        self._arguments = [*map(_place, kinds, [block] * len(kinds), offsets)][: len(signature.arguments)]
        tensors = [i for i, kind in enumerate(signature.arguments) if isinstance(kind, TensorKind)]
        self._written = [(i, n) for n, i in enumerate(tensors) if getattr(signature.arguments[i], "written", False)]
        """For each argument that is written: its position, and that among the tensors."""
        self._recurring = RecurringCall(len(signature.arguments))
        """Recognizes calls whose sizes the descriptors have."""
        addresses = [ctypes.addressof(block) + offset for offset in offsets]
        by_pointer = [isinstance(kind, TensorKind) for kind in kinds]
        described = [address for address, pointed in zip(addresses, by_pointer, strict=True) if pointed]
        self._addresses = (ctypes.c_int64 * len(described))()
        """The addresses of tensors: of arguments, ``memory``, values of results, and new results."""
        self._memory = [tensor.data_ptr() for tensor in memory] + [ctypes.addressof(block) + value for value in values]
        # Scalars are passed by their address, descriptors by the address of a pointer.
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        passed = (ctypes.c_void_p * len(addresses))(
            *(
                ctypes.addressof(pointers) + i * _WORD if pointed else address
                for i, (address, pointed) in enumerate(zip(addresses, by_pointer, strict=True))
            )
        )
        descriptors = (ctypes.c_void_p * len(described))(*described)
        arrays = [ctypes.c_void_p(ctypes.addressof(array)) for array in (passed, descriptors, self._addresses)]
        count, self._code = ctypes.c_int64(len(described)), ctypes.c_int32()
        slots = (ctypes.c_void_p * 6)(*map(ctypes.addressof, (function, arrays[0], count, *arrays[1:], self._code)))
        self._slots = ctypes.addressof(slots)
        self._keep = (keep, memory, block, pointers, passed, descriptors, arrays, count, function, slots)

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        """Call the function.

        Raises:
            UsageError: for arguments that do not fit, and for errors at run time.
        """
        with self._lock:
            # Compiled code gets addresses: these tensors keep the memory alive until it has returned.
            new = [_empty_strided_cpu(*layout) for layout in self._new]
            tensors = arguments if self._recurring.matches(arguments) else self._checked(arguments)
            addresses = [*map(_address, tensors)]
            if 0 in addresses:  # it has no elements, or its storage was freed
                self.signature.check(arguments)
            self._addresses[:] = [*addresses, *self._memory, *map(_address, new)]
            failure = self._run()
            if failure or self._code.value:
                raise self._error(failure) from (failure and failure[1])
            for position, tensor in self._written:
                _write_back(arguments[position], tensors[tensor])
            if len(new) == len(self._results):
                return tuple(new)
            adopted, placed = iter(adopt([slot.read() for slot in self._adopted])), iter(new)
            return tuple(
                next(placed) if slot is _PLACED else slot.read() if isinstance(slot, _ScalarPlace) else next(adopted)
                for slot in self._results
            )

    def _checked(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """Check all arguments, write sizes and scalars, and return the tensors or contiguous copies of them."""
        self._recurring.forget()
        if len(arguments) != len(self._arguments):
            self.signature.check(arguments)
        passed = [argument.write(value) for argument, value in zip(self._arguments, arguments, strict=True)]
        if any(value is None for value in passed):
            self.signature.check(arguments)
        if all(argument is value for argument, value in zip(arguments, passed, strict=True)):
            self._recurring.accept(arguments)
        return [value for value in passed if isinstance(value, torch.Tensor)]

    def _run(self) -> tuple[str, BaseException] | None:
        """Run the code, and return the failure of a Python function that it called."""
        if self._take_failure is None:
            self._entry(self._slots)
            return None
        # Kernels of PyTorch compute in the dtypes of their arguments.
        with torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else _NOTHING:
            self._entry(self._slots)
        return self._take_failure()

    def _error(self, failure: tuple[str, BaseException] | None) -> UsageError:
        name = self.signature.name
        if failure is None:
            message = self.messages[self._code.value - 1]
            return violation_in(message, name) or UsageError(f"'{name}' stopped: {message}")
        operator, error = failure
        return UsageError(f"'{name}' stopped in {operator}, which PyTorch runs: {type(error).__name__}: {error}")


class InPlaceFunction:
    """Compiled code that writes new values of state in place of the old ones, and does not return them.

    Args:
        function: the code.
        aliases: the positions of the results that it does not return, and of the arguments that it writes instead.
    """

    def __init__(self, function: CompiledFunction, aliases: Mapping[int, int]):
        self.function = function
        self.aliases = aliases

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        """Call the function on copies of the state."""
        passed = list(arguments)
        for position in self.aliases.values():
            if position < len(passed) and isinstance(value := passed[position], torch.Tensor):
                passed[position] = value.detach().clone()
        return self.keep_state(*passed)

    def keep_state(self, *arguments: Any) -> tuple[Any, ...]:
        """Call the function; results that are state are the arguments, which it has overwritten."""
        returned = iter(self.function(*arguments))
        count = len(self.function.signature.results) + len(self.aliases)
        return tuple(arguments[self.aliases[at]] if at in self.aliases else next(returned) for at in range(count))


_NOTHING = nullcontext()
_VALUE = TensorKind((torch.int64,), ())
"""Of memory for one value: its descriptor has no sizes, and the dtype does not matter."""
_PLACED = None
"""In place of a result for which the function takes memory."""
_address = torch.Tensor.data_ptr


def _allocation(kind: TensorKind) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    """Return the sizes, strides and dtype of a new result, whose sizes are static."""
    sizes = tuple(size for size in kind.shape if size is not None)
    return sizes, torch.empty(sizes, device="meta").stride(), kind.dtypes[0]


def _write_back(argument: Any, passed: Any) -> None:
    """Copy the contiguous copy ``passed`` of an argument back to it, if there was a copy."""
    if argument.data_ptr() != passed.data_ptr():
        argument.detach().copy_(passed)


class _ScalarPlace:
    """The place of a scalar in a block."""

    def __init__(self, kind: ScalarKind, block: Any, offset: int):
        self._kind = kind
        self._variable = kind.ctype.from_buffer(block, offset)

    def write(self, value: Any) -> Any:
        """Write ``value`` and return it in a tuple; return None if it does not fit."""
        if self._kind.mismatch(value):
            return None
        self._variable.value = value
        return (value,)

    def read(self) -> Any:
        return self._variable.value


class _TensorPlace:
    """The place of the descriptor of a contiguous tensor in a block."""

    def __init__(self, kind: TensorKind, block: Any, offset: int):
        self._kind = kind
        self._block = block
        self._start = offset // _WORD
        self._sizes = slice(self._start + _HEADER, self._start + _HEADER + len(kind.shape))
        self._end = self._start + _HEADER + 2 * len(kind.shape)
        self._dtypes = kind.dtypes
        self._shape = None
        """The shape that the descriptor has."""
        if None not in kind.shape:
            self._describe(torch.Size(kind.shape))  # pyright: ignore[reportArgumentType]

    def _describe(self, shape: torch.Size) -> None:
        self._block[self._start : self._end] = describe(0, shape)
        self._shape = shape

    def write(self, value: Any) -> torch.Tensor | None:
        """Write the sizes of ``value``, and return it or a contiguous copy; None if it does not fit.

        The address is written by the compiled code.
        """
        if type(value) not in PLAIN or value.dtype not in self._dtypes:
            return None
        if value.shape != self._shape:
            if self._kind.mismatch(value):
                return None
            self._describe(value.shape)
        if value.layout is not torch.strided or not value.is_cpu or missing_values(value):
            return None
        if not value.is_contiguous() or value.is_conj() or value.is_neg():
            value = dense(value)
        return value

    def read(self) -> tuple[int, int, int, Sequence[int], torch.dtype]:
        """Return the allocated address, the aligned one, the offset, the sizes and the dtype of a result."""
        allocated, aligned, offset = self._block[self._start : self._start + _HEADER]
        return allocated, aligned, offset, self._block[self._sizes], self._dtypes[0]


def _place(kind: Kind, block: Any, offset: int) -> _TensorPlace | _ScalarPlace:
    return _TensorPlace(kind, block, offset) if isinstance(kind, TensorKind) else _ScalarPlace(kind, block, offset)

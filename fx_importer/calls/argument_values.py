"""Conversion of arguments and results: checks of dtypes, narrowed numbers, pairs of real numbers, and dense memory."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fx_importer.calls.call_signature import Signature
from fx_importer.calls.memref import dense
from fx_importer.calls.recurring_calls import PLAIN, RecurringCall, has_memory
from fx_importer.errors import UsageError
from fx_importer.manifest import Argument, Result


def check_dtype(name: str, value: Any, dtype: str) -> None:
    """Raise `UsageError` on a dtype mismatch. MLIR's signless integers do not distinguish signed from unsigned."""
    if isinstance(value, torch.Tensor) and value.dtype != getattr(torch, dtype, value.dtype):
        met = str(value.dtype).removeprefix("torch.")
        raise UsageError(f"the input '{name}' is {met}, but the program was exported for {dtype}")


def check_shape(name: str, value: Any, shape: Sequence[int | str]) -> None:
    """Raise `UsageError` if the rank or a static size differs: for inputs that the function does not take.

    Those are tensors without elements in TOSA, which no backend compares with the function's types.
    """
    sizes = list(value.shape) if isinstance(value, torch.Tensor) else None
    static = {axis: size for axis, size in enumerate(shape) if isinstance(size, int)}
    if sizes is None or len(sizes) != len(shape) or any(sizes[axis] != size for axis, size in static.items()):
        met = f"is a {type(value).__name__}" if sizes is None else f"has shape {sizes}"
        wanted = ", ".join(map(str, shape))
        raise UsageError(f"the input '{name}' {met}, but the program was exported for [{wanted}]")


def check_writable(name: str, value: Any) -> None:
    """Raise `UsageError` if elements of the tensor overlap in memory, which makes it unwritable."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.numel() == 0:
        return
    furthest = 0
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size > 1 and stride <= furthest:
            raise UsageError(
                f"the input '{name}' is written, but its elements share memory, as those of an expanded tensor do "
                f"(shape {tuple(value.shape)}, strides {value.stride()}): pass a copy, {name}.clone()"
            )
        furthest += (size - 1) * stride


def check_apart(written: Sequence[tuple[str, int]], leaves: Sequence[Any]) -> None:
    """Raise `UsageError` if a tensor of ``leaves`` shares elements with an input that is written."""
    names = {position: name for name, position in written}
    extents = [(leaf.data_ptr(), _end(leaf), i) for i, leaf in enumerate(leaves) if _lies_in_memory(leaf)]
    before: list[tuple[int, int, int]] = []
    for extent in sorted(extents):
        before = [other for other in before if other[1] > extent[0]]
        for _, _, i in before:
            name = names.get(i) or names.get(extent[2])
            if name and np.shares_memory(_array(leaves[i]), _array(leaves[extent[2]])):
                raise UsageError(
                    f"the input '{name}' is written, and another input shares its memory, which the program was not "
                    f"captured for: pass a copy, {name}.clone()"
                )
        before.append(extent)


def _lies_in_memory(value: Any) -> bool:
    return type(value) in PLAIN and value.layout is torch.strided and 0 not in (value.numel(), value.data_ptr())


def _end(x: torch.Tensor) -> int:
    """Return the address behind the last byte of ``x``."""
    furthest = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr() + x.element_size() * (1 + furthest)


def _array(x: torch.Tensor) -> np.ndarray:
    """Return an array with the memory of ``x``, on any device: nothing of it is read."""
    strides = tuple(stride * x.element_size() for stride in x.stride())
    memory = {"data": (x.data_ptr(), True), "shape": tuple(x.shape), "strides": strides, "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=memory | {"typestr": f"|V{x.element_size()}"}))


def as_argument(argument: Argument, value: Any) -> Any:
    """Convert ``value`` to the argument's type: narrow numbers, split complex tensors into real and imaginary parts."""
    if argument.passed_as is None or not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj()).contiguous()
    if value.is_floating_point():
        return _as_narrow_float(argument, value)
    signed = value.view(torch.int64)
    narrow = signed.int()
    if not torch.equal(narrow.long(), signed):
        raise UsageError(
            f"the {argument.kind} '{argument.name}' holds numbers from {value.min()} to {value.max()}, but the program "
            f"was lowered with narrow_integers, and takes {argument.passed_as}"
        )
    return narrow


def _as_narrow_float(argument: Argument, value: torch.Tensor) -> torch.Tensor:
    """Round ``value`` to the float dtype that the function takes. Raise instead of overflowing to infinity."""
    narrow = value.to(getattr(torch, str(argument.passed_as)))
    if narrow.dtype != value.dtype and not torch.equal(torch.isinf(narrow), torch.isinf(value)):
        largest = value[value.isfinite()].abs().max()
        raise UsageError(
            f"the {argument.kind} '{argument.name}' holds numbers as large as {largest}, but the program was lowered "
            f"with narrow_floats, and takes {argument.passed_as}"
        )
    return narrow


def with_declared_dtype(value: Any, record: Argument | Result) -> Any:
    """Convert ``value`` to the model's dtype: widen numbers, rebuild complex ones, restore integer signedness."""
    if not isinstance(value, torch.Tensor):
        return value
    declared = getattr(torch, record.type.dtype)
    if declared.is_complex:
        return (value if value.is_complex() else torch.view_as_complex(value.contiguous())).to(declared)
    if record.passed_as is not None:
        value = value.to(declared) if declared.is_floating_point else value.long()
    return value if value.dtype == declared else value.view(declared)


class DenseArguments:
    """Checks the arguments of a function, makes tensors dense, and detaches them.

    A call that matches the previous one costs one comparison.
    """

    def __init__(self, signature: Signature):
        self._signature = signature
        self._recurring = RecurringCall(len(signature.arguments))
        self._recurring_with_gradients = RecurringCall(len(signature.arguments))

    def __call__(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Return ``arguments`` with dense tensors. Raises `UsageError` listing every argument that does not fit."""
        if self._recurring.matches(arguments) and has_memory(arguments):
            return arguments
        if self._recurring_with_gradients.matches(arguments) and has_memory(arguments):
            return [argument.detach() for argument in arguments]
        self._signature.check(arguments)
        made = [dense(argument) if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        if all(
            isinstance(argument, torch.Tensor) and _same(argument, new)
            for argument, new in zip(arguments, made, strict=True)
        ):
            needs_gradients = any(argument.requires_grad for argument in arguments)
            (self._recurring_with_gradients if needs_gradients else self._recurring).accept(arguments)
        return made


def _same(tensor: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether ``new`` has the data pointer and strides of ``tensor``."""
    return tensor.data_ptr() == new.data_ptr() and tensor.stride() == new.stride()

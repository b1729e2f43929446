"""Compile a static copy of a dynamic-shape module for each set of argument sizes; includes StableHLO's specializer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fx_importer.calls.backend import Loaded, Value
from fx_importer.calls.call_signature import Signature, TensorKind
from fx_importer.calls.float_sizes import fold_scalars
from fx_importer.calls.gathered_axes import pad_gathered_axes, remove_padding
from fx_importer.calls.state import OnDevice
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir, passmanager
from fx_importer.mlir.emit.emitter import update_function_type
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.walk import operations

_REFINE = "builtin.module(stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism,canonicalize,cse))"


Specialize = Callable[[ir.Module, Sequence[Sequence[int]], Sequence["int | None"]], ir.Module]


MOST = 256
"""Specializations of a function that are kept; then, the one whose last use is longest ago makes room."""


@dataclass(frozen=True)
class Specialized:
    """A dynamic-shape function for a runtime with static shapes. Specializations are cached.

    Integers passed as rank-0 tensors may be sizes; in that case each value gets its own specialization.
    """

    signature: Signature
    module: ir.Module
    """A module with the single function ``main``."""
    load: Callable[[ir.Module, Signature], Loaded]
    """Compiles a static copy."""
    specialize: Specialize | None = None
    """Returns a copy for the argument shapes and integer values; StableHLO's specializer by default."""
    held: dict[Any, Loaded] = field(default_factory=dict)
    uses: dict[Any, int] = field(default_factory=dict)
    """The number of the last call of each specialization."""
    calls: Iterator[int] = field(default_factory=itertools.count, repr=False, compare=False)
    lock: AbstractContextManager[Any] = field(default_factory=threading.RLock, repr=False, compare=False)
    """Held while a specialization is compiled."""

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        return self._specialization(arguments)(*arguments)

    def keep_state(self, *arguments: Value | OnDevice) -> tuple[Any, ...]:
        """Call the function. New values of state stay on the device if specializations keep them there."""
        # A scalar may be a size, so its value must be known.
        read = [
            argument.tensor() if isinstance(argument, OnDevice) and not argument.shape else argument
            for argument in arguments
        ]
        specialization = self._specialization(read)
        return getattr(specialization, "keep_state", specialization)(*read)

    def _specialization(self, arguments: Sequence[Any]) -> Loaded:
        self.signature.check(arguments)
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor | OnDevice)]
        shapes: Any = tuple(tuple(tensor.shape) for tensor in tensors)
        key = shapes
        if (loaded := self.held.get(key)) is None:
            numbers = tuple(_integer(tensor) for tensor in tensors)  # which a device has to be waited for
            key = (shapes, numbers)
            if (loaded := self.held.get(key)) is None:
                with self.lock:
                    key, loaded = self._compiled(shapes, numbers)
        self.uses[key] = next(self.calls)
        return loaded

    def _compiled(self, shapes: tuple[Any, ...], numbers: tuple[int | None, ...]) -> tuple[Any, Loaded]:
        """Return the specialization and its key, compiled unless another thread has done so."""
        keys = (shapes, (shapes, numbers))
        if not any(key in self.held for key in keys):
            if len(self.held) >= MOST:
                oldest = min(self.held, key=lambda key: self.uses.get(key, -1))
                del self.held[oldest]
                self.uses.pop(oldest, None)
            self._compile(shapes, numbers)
        return next((key, self.held[key]) for key in keys if key in self.held)

    def _compile(self, shapes: tuple[Any, ...], numbers: tuple[int | None, ...]) -> None:
        """Compile the specialization for ``shapes``, and for ``numbers`` if sizes depend on them."""
        specialize = self.specialize or _specialize
        with Trace().stage("specialize"):
            key: Any = shapes
            module = specialize(self.module, shapes, ())
            if not _is_static(module):
                key, module = (shapes, numbers), specialize(self.module, shapes, numbers)
        if not _is_static(module):
            sizes = ", ".join(str(list(shape)) for shape in shapes)
            raise UsageError(f"'{self.signature.name}' has sizes that do not follow from those of its inputs, {sizes}")
        function = functions_of(module)["main"]
        results = tuple(
            TensorKind(kind.dtypes, tuple(ir.RankedTensorType(type_).shape)) if isinstance(kind, TensorKind) else kind
            for kind, type_ in zip(self.signature.results, function.type.results, strict=True)
        )
        if results and all(isinstance(kind, TensorKind) and 0 in kind.shape for kind in results):
            self.held[key] = _EmptyResults(results, self.signature.device)
        else:
            self.held[key] = self.load(module, replace(self.signature, results=results))


@dataclass(frozen=True)
class _EmptyResults:
    """A function that returns tensors without elements, for which it computes nothing."""

    results: tuple[Any, ...]
    """The kinds of the results, `TensorKind`."""
    device: torch.device

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        return tuple(torch.empty(kind.shape, dtype=kind.dtypes[0], device=self.device) for kind in self.results)


def is_dynamic(signature: Signature) -> bool:
    """Whether a function takes or returns tensors with dynamic sizes."""
    return any(
        isinstance(kind, TensorKind) and None in kind.shape for kind in (*signature.arguments, *signature.results)
    )


def _integer(value: torch.Tensor | OnDevice) -> int | None:
    """Return the value of a scalar of int64; None for anything else."""
    if isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype == torch.int64:
        return int(value)
    return None


def _specialize(module: ir.Module, shapes: Sequence[Sequence[int]], numbers: Sequence[int | None] = ()) -> ir.Module:
    """Return a copy whose first arguments have ``shapes``, with the integers in ``numbers`` as constants."""
    copy = copy_module(module.operation)
    function = functions_of(copy)["main"]
    with copy.context, function.location:
        pad_gathered_axes(copy.operation)
        for argument, shape in zip(function.entry_block.arguments, shapes, strict=False):
            argument.set_type(ir.RankedTensorType.get(shape, argument.type.element_type))
        for argument, number in zip(function.entry_block.arguments, numbers, strict=False):
            if number is not None:
                value = ir.DenseElementsAttr.get_splat(
                    argument.type, ir.IntegerAttr.get(ir.RankedTensorType(argument.type).element_type, number)
                )
                emit = StablehloOps(ir.InsertionPoint.at_block_begin(function.entry_block), function.location)
                argument.replace_all_uses_with(emit.const(value))
        update_function_type(function)
        passes = passmanager.PassManager.parse(_REFINE, copy.context)
        passes.enable_verifier(False)  # until shapes are refined, operands are more static than their users allow
        passes.run(copy.operation)
        while not _is_static(copy) and fold_scalars(function.entry_block):
            passes.run(copy.operation)
        remove_padding(copy.operation)
        update_function_type(function)
    copy.operation.verify()
    return copy


def _is_static(module: ir.Module) -> bool:
    types = (result.type for op in operations(module.operation) for result in op.results)
    return all(type_.has_static_shape for type_ in types if isinstance(type_, ir.RankedTensorType))

"""Call plans: the manifest entry of a function, resolved once so that each call does only the necessary work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from operator import itemgetter
from typing import Any, Protocol

import torch

from fx_importer.calls.argument_values import (
    as_argument,
    check_apart,
    check_dtype,
    check_shape,
    check_writable,
    with_declared_dtype,
)
from fx_importer.calls.backend import Loaded
from fx_importer.calls.nested_inputs import UNKNOWN_TYPE, Flattener, builder
from fx_importer.calls.recurring_calls import RecurringCall
from fx_importer.calls.size_checks import SizeChecks
from fx_importer.calls.state import OnDevice, State
from fx_importer.diagnostics.assumption_messages import violation_in
from fx_importer.errors import AssumptionError, UsageError
from fx_importer.manifest import Argument, Function, Leaf, Manifest, Result
from fx_importer.mlir.dtypes import DTYPES
from fx_importer.output_types import OutputType


class HeldTensors(Protocol):
    """The tensors that a caller keeps between calls, by their name in the state dict."""

    state: State
    weights: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    lock: AbstractContextManager[Any]


Read = Callable[[Sequence[Any]], Any]
"""Return an argument of the function, given the leaves of the inputs."""

Store = Callable[[Sequence[Any], list[Any], Any], None]
"""Store a result of the function, given the leaves of the inputs and of the outputs."""


class CallPlan:
    """One function of a module, with the work before and after the ``loaded`` function runs.

    If ``loaded`` has a ``keep_state`` method (`OnDevice`), the plan calls it instead, and state stays in the backend's
    form.

    Raises:
        UsageError: if the nested inputs have an unknown type.
    """

    def __init__(self, name: str, manifest: Manifest, loaded: Loaded, values: HeldTensors):
        function = manifest.functions[name]
        scalars_are_tensors = OutputType.get(manifest.output_type).root in _SCALARS_ARE_TENSORS
        self._name = name
        self._function = function
        kinds = {record.kind for record in (*function.arguments, *function.results)}
        self._lock = values.lock if kinds & {"state", "gradient"} else None
        keeps: Loaded | None = getattr(loaded, "keep_state", None)
        self._loaded = keeps or loaded
        self._flattener = Flattener(function)
        self._check_sizes = SizeChecks(function) if function.symbols else None
        self._recurring = RecurringCall(len(function.inputs.leaves))
        self._writable = _written(function)
        self._typed = [
            (argument.name, argument.leaf, argument.type.dtype, getattr(torch, argument.type.dtype, None))
            for argument in function.arguments
            if argument.kind == "input" and argument.leaf is not None
        ]
        passed = {argument.leaf for argument in function.arguments if argument.kind == "input"}
        self._left_out = [
            (i, leaf.path, leaf.type)
            for i, leaf in enumerate(function.inputs.leaves)
            if i not in passed and not leaf.fixed and leaf.type is not None
        ]
        arguments = [(argument.kind, argument.leaf, argument.passed_as) for argument in function.arguments]
        in_order = arguments == [("input", i, None) for i in range(len(function.inputs.leaves))]
        numbers = scalars_are_tensors and not all(argument.type.shape for argument in function.arguments)
        self._takes_leaves = in_order and not numbers
        """Whether the arguments are exactly the input leaves, in order."""
        self._arguments = [
            _read(argument, values, scalars_are_tensors, keeps is not None) for argument in function.arguments
        ]
        self._results: list[Store] = [_store(result, values) for result in function.results]
        self._checks = [(i, result.name) for i, result in enumerate(function.results) if result.kind == "check"]
        self._padded = [(leaf, [*axes.items()]) for leaf, axes in function.padded_axes.items()]
        leaves = function.outputs.leaves
        self._leaves = [leaf.value for leaf in leaves]
        """The output leaves. Leaves that the function returns are replaced on each call."""
        self._made = [(i, make) for i, leaf in enumerate(leaves) if (make := _empty(leaf)) is not None]
        self._build = None if function.outputs.spec is None else builder(function.outputs.spec)

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the function with the inputs of the model, and return its outputs.

        Raises:
            UsageError: for inputs that the program was not exported for, or if the output type is unknown.
            AssumptionError: if a value that the capture assumed is another one for these inputs.
        """
        leaves = self._flattener.flat(args, kwargs)
        if leaves is None or not self._recurring.matches(leaves):
            leaves = self._checked_leaves(args, kwargs)
        if self._writable and len(leaves) > 1:
            check_apart(self._writable, leaves)
        if self._lock is not None:
            with self._lock:
                return self._outputs(leaves, self._returned([read(leaves) for read in self._arguments]))
        returned = self._returned(leaves if self._takes_leaves else [read(leaves) for read in self._arguments])
        return self._outputs(leaves, returned)

    def _returned(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Call the function; an assertion of an assumption that fails in an engine is an `AssumptionError`."""
        try:
            return self._loaded(*arguments)
        except Exception as error:
            if self._function.assumptions and (violation := violation_in(str(error), self._name)) is not None:
                raise violation from error
            raise

    def _checked_leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        leaves = self._flattener.leaves(args, kwargs)
        if self._recurring.matches(leaves):
            return leaves
        if self._check_sizes is not None:
            self._check_sizes(leaves)
        for name, leaf in self._writable:
            check_writable(name, leaves[leaf])
        for name, leaf, spelled, dtype in self._typed:
            if isinstance(value := leaves[leaf], torch.Tensor) and value.dtype is not dtype:
                check_dtype(name, value, spelled)
        for leaf, path, kind in self._left_out:
            if kind.shape is not None:
                check_shape(path, leaves[leaf], kind.shape)
                check_dtype(path, leaves[leaf], kind.dtype)
        self._recurring.accept(leaves)
        return leaves

    def _outputs(self, leaves: Sequence[Any], returned: Sequence[Any]) -> Any:
        """Store the function's results, and return the outputs of the model. First check what the capture assumed."""
        for position, assumption in self._checks:
            if not returned[position]:
                raise AssumptionError(self._name, assumption)
        outputs: list[Any] = [*self._leaves]
        for position, make in self._made:
            outputs[position] = make()
        for store, value in zip(self._results, returned, strict=True):
            store(leaves, outputs, value)
        for leaf, axes in self._padded:
            outputs[leaf] = without_padding(outputs[leaf], [(axis, returned[position]) for axis, position in axes])
        if self._build is None:
            raise UsageError(f"'{self._name}' returns a type {UNKNOWN_TYPE}")
        return self._build(outputs)


def without_padding(padded: Any, sizes: Sequence[tuple[int, Any]]) -> torch.Tensor:
    """Return the first elements of ``padded`` along axes, as many as their ``sizes`` are."""
    tensor = padded.tensor() if isinstance(padded, OnDevice) else padded
    for axis, size in sizes:
        tensor = tensor.narrow(axis, 0, int(size.tensor() if isinstance(size, OnDevice) else size))
    return tensor.contiguous()


def is_plain(function: Function) -> bool:
    """Return whether arguments and results are the flat inputs and outputs, in order, with the model's own types."""
    arguments, results = function.arguments, function.results
    takes = [("input", i) for i in range(len(function.inputs.leaves))]
    gives = [("output", i) for i in range(len(function.outputs.leaves))]
    return (
        [(argument.kind, argument.leaf) for argument in arguments] == takes
        and [(result.kind, result.leaf) for result in results] == gives
        and not function.assumptions
        and not any(argument.overwritten for argument in arguments)
        and not any(value.passed_as or value.type.shape is None for value in (*arguments, *results))
        and all(value.type.dtype in _OWN_TYPES for value in (*arguments, *results))
    )


_OWN_TYPES = frozenset(str(entry[0]).removeprefix("torch.") for entry in DTYPES.values() if not entry[0].is_complex)
"""The default dtype of each element type, except complex ones, which some output types split."""

_SCALARS_ARE_TENSORS = frozenset((OutputType.STABLEHLO,))
"""Output types whose functions take scalars as rank-0 tensors."""

_SCALAR_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


def _written(function: Function) -> list[tuple[str, int]]:
    """Return the names and leaves of the inputs that a call writes to."""
    inputs = (record for record in (*function.arguments, *function.results) if record.kind == "input")
    return [
        (argument.name, argument.leaf)
        for argument in inputs
        if argument.leaf is not None and (isinstance(argument, Result) or argument.overwritten)
    ]


def _read(argument: Argument, values: HeldTensors, scalars_are_tensors: bool, on_device: bool) -> Read:
    name, leaf = argument.name, argument.leaf or 0
    read: Read
    if argument.kind == "state":
        state = values.state.held if on_device else values.state
        read = lambda leaves: state[name]  # noqa: E731
    elif argument.kind == "weight":
        read = lambda leaves: values.weights[name]  # noqa: E731
    elif scalars_are_tensors:
        read = lambda leaves: _scalar_as_tensor(leaves[leaf])  # noqa: E731
    else:
        read = itemgetter(leaf)
    if argument.passed_as is None:
        return read
    return lambda leaves: as_argument(argument, read(leaves))


def _scalar_as_tensor(value: Any) -> Any:
    return torch.tensor(value, dtype=_SCALAR_DTYPES[type(value)]) if type(value) in _SCALAR_DTYPES else value


def _store(result: Result, values: HeldTensors) -> Store:
    kind, name, leaf, is_number = result.kind, result.name, result.leaf, result.type.shape is None
    declared = getattr(torch, result.type.dtype)

    def converted(value: Any) -> Any:
        if isinstance(value, OnDevice):
            if result.passed_as is None and value.dtype is declared:
                return value
            value = value.tensor()
        if not isinstance(value, torch.Tensor):
            return value
        return value.item() if is_number else with_declared_dtype(value, result)

    def store(leaves: Sequence[Any], outputs: list[Any], value: Any) -> None:
        if is_number or type(value) is not torch.Tensor or value.dtype is not declared:
            value = converted(value)
        if kind == "output" and leaf is not None:
            outputs[leaf] = value
        elif kind == "state":
            values.state[name] = value
        elif kind == "gradient":
            values.gradients[name] = value
        elif kind == "input" and leaf is not None:
            with torch.no_grad():
                leaves[leaf].copy_(value)

    return store


def _empty(leaf: Leaf) -> Callable[[], torch.Tensor] | None:
    """Return a factory for an output without elements, which functions may not return; None for other outputs."""
    shape = leaf.type.shape if leaf.type is not None else None
    sizes = [size for size in shape or () if isinstance(size, int)]
    if leaf.type is None or shape is None or 0 not in sizes or len(sizes) < len(shape):
        return None
    return partial(torch.empty, sizes, dtype=getattr(torch, leaf.type.dtype))

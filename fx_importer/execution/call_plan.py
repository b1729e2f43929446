"""The plan of a call: what the manifest says of a function, resolved once, so that a call does only what is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

import torch

from fx_importer.errors import UsageError
from fx_importer.execution.argument_values import as_argument, check_dtype, check_writable, with_declared_dtype
from fx_importer.execution.nested_inputs import UNKNOWN_TYPE, Flattener, builder
from fx_importer.execution.size_checks import check_sizes
from fx_importer.manifest import Argument, Function, Leaf, Manifest, Result
from fx_importer.output_types import OutputType


class Held(Protocol):
    """The tensors that a caller keeps between calls, by name in the state dict."""

    state: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]


Read = Callable[[list[Any]], Any]
"""Return an argument of the function, from the leaves of the inputs."""

Store = Callable[[list[Any], list[Any], Any], None]
"""Store a result of the function, given the leaves of the inputs and of the outputs."""


class CallPlan:
    """What a call of one function does before and after it.

    Raises:
        UsageError: if a type of the nested inputs is not known.
    """

    def __init__(self, name: str, manifest: Manifest, held: Held):
        function = manifest.functions[name]
        scalars_are_tensors = OutputType.get(manifest.output_type).root in _SCALARS_ARE_TENSORS
        self._function = function
        self._flattener = Flattener(function)
        self._writable = _written(function)
        self._typed = [
            (each.name, each.leaf, each.type.dtype, getattr(torch, each.type.dtype, None))
            for each in function.arguments
            if each.kind == "input" and each.leaf is not None
        ]
        self.arguments: list[Read] = [_read(each, held, scalars_are_tensors) for each in function.arguments]
        """What reads each argument of the function."""
        self._results: list[Store] = [_store(each, held) for each in function.results]
        self._leaves = [_without_result(leaf) for leaf in function.outputs.leaves]
        """What makes the leaves of the outputs that the function does not return."""
        self._build = None if function.outputs.spec is None else builder(function.outputs.spec)
        self._name = name

    def inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the leaves of the inputs.

        Raises:
            UsageError: for inputs that the program was not exported for.
        """
        leaves = self._flattener.leaves(args, kwargs)
        if self._function.symbols:
            check_sizes(self._function, leaves)
        for name, leaf in self._writable:
            check_writable(name, leaves[leaf])
        for name, leaf, spelled, dtype in self._typed:
            if isinstance(value := leaves[leaf], torch.Tensor) and value.dtype is not dtype:
                check_dtype(name, value, spelled)
        return leaves

    def outputs(self, leaves: list[Any], returned: Sequence[Any]) -> Any:
        """Store what the function returned, and return the outputs of the model.

        Raises:
            UsageError: if the type of the outputs is not known.
        """
        outputs = [make() if callable(make) else make for make in self._leaves]
        for store, value in zip(self._results, returned, strict=True):
            store(leaves, outputs, value)
        if self._build is None:
            raise UsageError(f"'{self._name}' returns a type {UNKNOWN_TYPE}")
        return self._build(outputs)


_SCALARS_ARE_TENSORS = frozenset((OutputType.STABLEHLO,))
"""The output types whose functions take rank-0 tensors for scalars."""

_SCALAR_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


def _written(function: Function) -> list[tuple[str, int]]:
    """Return the names and leaves of the inputs that a call writes to."""
    inputs = (each for each in (*function.arguments, *function.results) if each.kind == "input")
    return [
        (each.name, each.leaf)
        for each in inputs
        if each.leaf is not None and (isinstance(each, Result) or each.overwritten)
    ]


def _read(argument: Argument, held: Held, scalars_are_tensors: bool) -> Read:
    name, leaf = argument.name, argument.leaf or 0
    read: Read
    if argument.kind == "state":
        read = lambda leaves: held.state[name]  # noqa: E731
    elif argument.kind == "weight":
        read = lambda leaves: held.weights[name]  # noqa: E731
    elif scalars_are_tensors:
        read = lambda leaves: _scalar_as_tensor(leaves[leaf])  # noqa: E731
    else:
        read = itemgetter(leaf)
    if argument.passed_as is None:
        return read
    return lambda leaves: as_argument(argument, read(leaves))


def _scalar_as_tensor(value: Any) -> Any:
    return torch.tensor(value, dtype=_SCALAR_DTYPES[type(value)]) if type(value) in _SCALAR_DTYPES else value


def _store(result: Result, held: Held) -> Store:
    name, leaf, is_number = result.name, result.leaf, result.type.shape is None
    declared = getattr(torch, result.type.dtype)

    def converted(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if is_number:
            return value.item()
        return value if value.dtype is declared else with_declared_dtype(value, result)

    def store(leaves: list[Any], outputs: list[Any], value: Any) -> None:
        value = converted(value)
        if result.kind == "state":
            held.state[name] = value
        elif result.kind == "gradient":
            held.gradients[name] = value
        elif result.kind == "input" and leaf is not None:
            with torch.no_grad():
                leaves[leaf].copy_(value)
        elif leaf is not None:
            outputs[leaf] = value

    return store


def _without_result(leaf: Leaf) -> Any:
    """Return an output that the function does not return: its value, or what makes a tensor without elements."""
    shape = leaf.type.shape if leaf.type is not None else None
    sizes = [size for size in shape or () if isinstance(size, int)]
    if leaf.type is None or shape is None or 0 not in sizes or len(sizes) < len(shape):
        return leaf.value
    dtype = getattr(torch, leaf.type.dtype)
    return lambda: torch.empty(sizes, dtype=dtype)

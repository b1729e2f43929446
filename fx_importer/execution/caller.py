"""The calling convention of the model, with nested inputs and outputs and state, on flat functions of a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError
from fx_importer.execution.backend import Loaded
from fx_importer.execution.size_checks import check_sizes
from fx_importer.manifest import Argument, Function, Leaf, Manifest, Result
from fx_importer.output_types import OutputType


class Caller:
    """Calls a module's functions as the model is called, and keeps the state between calls.

    It needs a manifest and, for each function, a callable that takes and returns flat tensors and scalars: one that a
    `Backend` loads, or of any other runtime.

    Args:
        manifest: of the module.
        functions: a callable for each function of the manifest, by name.
        state: the initial state by name, which is copied; and the weights that functions take, which are not. A whole
            state dict may be passed.

    Raises:
        UsageError: if a function or an entry of the state is missing, or an entry is no tensor or on the meta device.
    """

    def __init__(
        self, manifest: Manifest, functions: Mapping[str, Loaded], state: Mapping[str, torch.Tensor] | None = None
    ):
        self.manifest = manifest
        self._functions = dict(functions)
        _require("function", manifest.functions, functions)
        given = state or {}
        _require("state", manifest.state, given)
        self.state = {name: _checked_tensor("state", name, given[name]).clone() for name in manifest.state}
        """The current state, by name in the state dict."""
        functions_of = manifest.functions.values()
        weights = {each.name: each for function in functions_of for each in function.arguments if each.kind == "weight"}
        _require("weight", weights, given)
        self._weights = {name: _checked_tensor("weight", name, given[name]) for name in weights}
        self.gradients: dict[str, torch.Tensor] = {}
        """The gradients of the last call of a training program, by name of the parameter or input."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the only function of the module with the inputs of the model.

        Inputs that the model mutates are mutated.

        Raises:
            UsageError: for inputs that the program was not exported for; or if the module has several functions.
        """
        names = list(self.manifest.functions)
        if len(names) != 1:
            raise UsageError(f"the module has several functions: pick one, caller['{names[0]}'](...)")
        return self._call(names[0], *args, **kwargs)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return a callable for the function ``name``. All functions of a caller share its state."""
        if name not in self.manifest.functions:
            there = ", ".join(f"'{each}'" for each in self.manifest.functions)
            raise UsageError(f"the module has no function '{name}': there is {there}")
        return partial(self._call, name)

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        function = self.manifest.functions[name]
        leaves = _leaves(function, args, kwargs)
        check_sizes(function, leaves)
        for each in (*function.arguments, *function.results):
            if each.kind == "input" and each.leaf is not None and (isinstance(each, Result) or each.overwritten):
                _check_writable(each.name, leaves[each.leaf])
        held = {"state": self.state, "weight": self._weights}
        for argument in function.arguments:
            if argument.kind == "input" and argument.leaf is not None:
                _check_dtype(argument.name, leaves[argument.leaf], argument.type.dtype)
        flat = [
            _as_argument(
                each, held[each.kind][each.name] if each.kind in held else self._as_input(leaves[each.leaf or 0])
            )
            for each in function.arguments
        ]
        returned = self._functions[name](*flat)
        outputs = [_without_result(leaf) for leaf in function.outputs.leaves]
        for result, value in zip(function.results, returned, strict=True):
            if result.type.shape is None and isinstance(value, torch.Tensor):
                value = value.item()
            value = with_declared_dtype(value, result)
            if result.kind == "state":
                self.state[result.name] = value
            elif result.kind == "gradient":
                self.gradients[result.name] = value
            elif result.kind == "input" and result.leaf is not None:
                with torch.no_grad():
                    leaves[result.leaf].copy_(value)
            elif result.leaf is not None:
                outputs[result.leaf] = value
        if function.outputs.spec is None:
            raise UsageError(f"'{name}' returns a type {_UNKNOWN}")
        return pytree.tree_unflatten(outputs, function.outputs.spec)

    def _as_input(self, value: Any) -> Any:
        """Return ``value`` as the function takes it: in StableHLO, scalars are rank-0 tensors."""
        if type(value) in _SCALAR_DTYPES and OutputType.get(self.manifest.output_type).root in _SCALARS_ARE_TENSORS:
            return torch.tensor(value, dtype=_SCALAR_DTYPES[type(value)])
        return value


_UNKNOWN = (
    "that its manifest could not name, or that is not known here: register it with torch under a name, or pass a named "
    "tuple to Manifest.from_json(text, types=[...])"
)

_SCALARS_ARE_TENSORS = frozenset((OutputType.STABLEHLO,))
"""The output types whose functions take rank-0 tensors for scalars."""

_SCALAR_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


def _without_result(leaf: Leaf) -> Any:
    """Return an output that the function does not return: its constant value, or a tensor without elements."""
    shape = leaf.type.shape if leaf.type is not None else None
    sizes = [size for size in shape or () if isinstance(size, int)]
    if leaf.type is None or shape is None or 0 not in sizes or len(sizes) < len(shape):
        return leaf.value
    return torch.empty(sizes, dtype=getattr(torch, leaf.type.dtype))


def _leaves(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the leaves of the inputs, in the order of the manifest.

    Raises:
        UsageError: if the inputs are nested differently than at export, or differ from a constant of the export.
    """
    expected = function.inputs.spec
    if expected is None:
        raise UsageError(f"the inputs are of a type {_UNKNOWN}")
    order = expected.child(1).context
    ordered = {name: kwargs[name] for name in order if name in kwargs} | dict(kwargs)
    leaves, spec = pytree.tree_flatten((tuple(args), ordered))
    if spec != expected:
        met, wanted = _paths((tuple(args), ordered)), [leaf.path for leaf in function.inputs.leaves]
        if met == wanted:
            raise UsageError(f"the inputs are nested as {spec}, but the program was exported for {expected}")
        raise UsageError(
            f"the inputs are {', '.join(met) or 'none'}, but the program was exported for {', '.join(wanted) or 'none'}"
        )
    for leaf, record in zip(leaves, function.inputs.leaves, strict=True):
        if record.fixed and (type(leaf) is not type(record.value) or leaf != record.value):
            raise UsageError(f"the input '{record.path}' is {leaf!r}, but was fixed to {record.value!r} by the export")
    return leaves


def _paths(inputs: tuple[Any, Any]) -> list[str]:
    """Return the paths of the leaves of ``(args, kwargs)`` as in a manifest."""
    roots = ("args", "kwargs")
    return [
        root + pytree.keystr(path)
        for root, tree in zip(roots, inputs, strict=True)
        for path, _ in pytree.tree_flatten_with_path(tree)[0]
    ]


def _check_dtype(name: str, value: Any, dtype: str) -> None:
    """Raise `UsageError` for another dtype. MLIR's signless integers cannot tell signed and unsigned ones apart."""
    if isinstance(value, torch.Tensor) and value.dtype != getattr(torch, dtype, value.dtype):
        met = str(value.dtype).removeprefix("torch.")
        raise UsageError(f"the input '{name}' is {met}, but the program was exported for {dtype}")


def _check_writable(name: str, value: Any) -> None:
    """Raise `UsageError` for a tensor with several elements in one place in memory, which cannot have new values."""
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


def _as_argument(argument: Argument, value: Any) -> Any:
    """Return ``value`` as the function takes it: narrowed numbers, and complex tensors as real and imaginary parts."""
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
    """Return ``value`` in the float dtype that the function takes, rounded. What does not fit is no infinity."""
    narrow = value.to(getattr(torch, str(argument.passed_as)))
    if narrow.dtype != value.dtype and not torch.equal(torch.isinf(narrow), torch.isinf(value)):
        largest = value[value.isfinite()].abs().max()
        raise UsageError(
            f"the {argument.kind} '{argument.name}' holds numbers as large as {largest}, but the program was lowered "
            f"with narrow_floats, and takes {argument.passed_as}"
        )
    return narrow


def with_declared_dtype(value: Any, record: Argument | Result) -> Any:
    """Return ``value`` in the dtype of the model: wide numbers, complex numbers, and signed or unsigned integers."""
    if not isinstance(value, torch.Tensor):
        return value
    declared = getattr(torch, record.type.dtype)
    if declared.is_complex:
        return (value if value.is_complex() else torch.view_as_complex(value.contiguous())).to(declared)
    if record.passed_as is not None:
        value = value.to(declared) if declared.is_floating_point else value.long()
    return value if value.dtype == declared else value.view(declared)


def _checked_tensor(what: str, name: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise UsageError(f"the {what} '{name}' is of type {type(value).__name__}, and not a tensor")
    if value.is_meta:
        raise UsageError(f"the {what} '{name}' is on the meta device, and has no values: pass what it is to begin with")
    return value.detach()


def _require(what: str, needed: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    if missing := [name for name in needed if name not in given]:
        raise UsageError(f"no {what} was given for {', '.join(map(repr, missing))}")

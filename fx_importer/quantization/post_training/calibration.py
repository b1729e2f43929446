"""Calibration inputs: accepted forms and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path

from fx_importer.errors import UsageError

Call = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and keyword arguments of a model."""


@runtime_checkable
class _Inputs(Protocol):
    """`fx_importer.Inputs`."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def calls_of(calibration: object) -> list[Call]:
    """Return the calls that ``calibration`` stands for: each a tensor, a tuple of arguments, or keyword arguments.

    Raises:
        UsageError: if there are none, or one is something else, or holds a value that is not finite.
    """
    if isinstance(calibration, Tensor) or not isinstance(calibration, Iterable):
        raise UsageError(
            f"calibration is a list of inputs, each a tensor, a tuple of arguments or a dict of keyword arguments, and "
            f"not a {type(calibration).__name__}: pass [x]"
        )
    calls = [_call(number, example) for number, example in enumerate(calibration)]
    if not calls:
        raise UsageError("calibration has no inputs: scales come from what the model computes for some of them")
    for number, call in enumerate(calls):
        for path, leaf in tree_flatten_with_path(call)[0]:
            floating = isinstance(leaf, Tensor) and leaf.is_floating_point()
            if floating and bool((leaf.isnan() | leaf.isposinf()).any()):  # masks have negative infinities
                raise UsageError(f"calibration input {number}: {_place(path)} has values that are not finite")
    return calls


def check_like_first(calls: Sequence[Call], dynamic: bool) -> None:
    """Raise `UsageError` unless all calls have the structure, dtypes and, if not ``dynamic``, shapes of the first."""
    first, of_first = tree_flatten_with_path(calls[0])
    for number, call in enumerate(calls[1:], 1):
        leaves, structure = tree_flatten_with_path(call)
        if structure != of_first:
            raise UsageError(f"calibration input {number} has other arguments than input 0")
        for (path, leaf), (_, like) in zip(leaves, first, strict=True):
            kind, expected = _kind(leaf, dynamic), _kind(like, dynamic)
            if kind != expected:
                raise UsageError(f"calibration input {number}: {_place(path)} is {kind}, and {expected} in input 0")


def _call(number: int, call: object) -> Call:
    if isinstance(call, Tensor):
        return (call,), {}
    if isinstance(call, Mapping):
        return (), {str(name): value for name, value in call.items()}
    if isinstance(call, tuple | list):
        return tuple(call), {}
    if isinstance(call, _Inputs):
        return tuple(call.args), dict(call.kwargs)
    raise UsageError(
        f"calibration input {number} is a {type(call).__name__}, and no tensor, tuple of arguments or dict of "
        "keyword arguments"
    )


def _kind(leaf: object, dynamic: bool) -> str:
    if not isinstance(leaf, Tensor):
        return repr(leaf)
    shape = f"{leaf.dim()} axes" if dynamic else f"shape {tuple(leaf.shape)}"
    return f"{leaf.dtype} of {shape}"


def _place(path: tuple[Any, ...]) -> str:
    """Return the place of an argument in a call as a user writes it."""
    kind, *rest = path
    if kind.idx == 0:
        return f"argument {keystr(tuple(rest))}"
    return f"argument '{rest[0].key}'{keystr(tuple(rest[1:]))}"

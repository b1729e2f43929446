"""Following suggestions: the text after ``try:`` is read, and the program is changed as it says."""

from __future__ import annotations

import ast
import copy
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from fx_importer import lower
from fx_importer.errors import FxImporterError
from fx_importer.fx_graph.operators import operator_named
from fx_importer.pipelines.isolated_runner import IsolatedProber
from fx_importer.probing.prober import LIMITS, Prober
from fx_importer.process.worker import Note
from testing.advice import Followed, Row
from testing.advising.programs import Program, program_of

DTYPES = {
    name: getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "complex128", "complex64", "complex32")
}


class Follower:
    """Lowers programs, and follows the suggestions of those that fail."""

    def __init__(self, note: Note):
        self._note = note
        logging.disable(logging.CRITICAL)
        Prober._process = IsolatedProber(LIMITS)  # one process for all programs, which takes longest to start
        warnings.simplefilter("ignore")

    def __call__(self, request: tuple[int, int]) -> Row:
        """Return what becomes of the program of a seed and an index."""
        seed, index = request
        program = program_of(seed, index)
        self._note(str(program))
        try:
            lowered(program)
        except FxImporterError as error:
            outcome, text = type(error).__name__, str(error)
        except Exception as error:
            return Row(index, str(program), f"untyped: {type(error).__name__}", error=str(error)[:2000])
        else:
            return Row(index, str(program), "lowers")
        suggestions = dict.fromkeys(match[1] for match in re.finditer(r"^ *try: (.*)$", text, re.MULTILINE))
        followed = [each for suggestion in suggestions for each in follow(suggestion, program)]
        return Row(index, str(program), outcome, tuple(followed), text)


def lowered(program: Program) -> None:
    """Lower a program. Its model and inputs are not changed."""
    lower(copy.deepcopy(program.f), *copy.deepcopy(program.args), **program.options)


def follow(suggestion: str, program: Program) -> Iterator[Followed]:
    """Yield what becomes of a program with each alternative of a suggestion."""
    changes = list(changes_of(suggestion, program))
    if not changes:
        yield Followed(suggestion, "not understood", False)
    for kind, change in changes:
        try:
            lowered(change())
        except Exception as error:
            yield Followed(suggestion, kind, False, f"{type(error).__name__}: {str(error)[:600]}")
        else:
            yield Followed(suggestion, kind, True)


def changes_of(text: str, program: Program) -> Iterator[tuple[str, Callable[[], Program]]]:
    """Yield the kind of each alternative of a suggestion, and a function that returns the changed program."""
    for option in ("output_type", "fallback", "unsupported"):
        for value in re.findall(rf"\b{option}=('[\w-]+')", text):
            yield option, lambda option=option, value=value: program.with_(**{option: ast.literal_eval(value)})
    if match := re.match(r"without keep=('[^']+'|\[.*?\])", text):
        dropped = ast.literal_eval(match[1])
        dropped = [dropped] if isinstance(dropped, str) else dropped
        left = [name for name in program.options["keep"] if name not in dropped]
        yield "keep", lambda: program.with_(keep=left)
    if text.startswith("without narrow_integers"):
        yield "narrow_integers", lambda: program.with_(narrow_integers=None)
    if text.startswith("static sizes, without dynamic_shapes"):
        yield "static sizes", lambda: program.with_(dynamic_shapes=None)
    if match := re.match(r"([\w ]+) instead of ([\w ]+)$", text):
        new, old = (match[n].split(" and ") for n in (1, 2))
        yield "dtype", lambda: _with_dtypes(program, new, old)
    if match := re.search(r"decompositions? of your own, extra=\{(.*)\}", text):
        names = re.findall(r"torch\.ops\.([\w.]+): function", match[1])
        yield "extra", lambda: program.with_(extra={operator_named(name): _own(name) for name in names})
    if ".long()" in text:
        names = re.findall(r"(\w+)\.long\(\)", text)
        yield "long", lambda: _with_long(program, names)
    if match := re.match(r"dynamic_shapes with Dim.STATIC for (.*)", text):
        yield "static dimension", lambda: _with_static(program, match[1].split(", "))


def _with_dtypes(program: Program, new: list[str], old: list[str]) -> Program:
    by_width = {DTYPES[name] for name in old}

    def converted(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype not in by_width:
            return value
        return value.to(torch.complex64 if value.is_complex() else torch.float32)

    assert {str(converted(torch.zeros((), dtype=DTYPES[name])).dtype)[6:] for name in old} == set(new)
    f = copy.deepcopy(program.f)
    if isinstance(f, nn.Module):
        for tensor in (*f.parameters(), *f.buffers()):
            tensor.data = converted(tensor.data)
    return replace(program, f=f, args=pytree.tree_map(converted, program.args))


def _own(name: str) -> Callable[..., Any]:
    """Return a decomposition of a user: a function of the elements for one tensor, zeros for other results."""

    def function(*args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        with _disable_current_modes():
            results = operator_named(name)(*args, **kwargs)  # type: ignore[operator]
        alike = next((x for x in tensors if isinstance(results, Tensor) and str(x.shape) == str(results.shape)), None)
        if alike is not None:
            return (alike + alike).to(results.dtype)
        sizes = {str(size): size for x in tensors for size in x.shape}
        return pytree.tree_map_only(
            Tensor, lambda x: torch.zeros([sizes.get(str(n), n) for n in x.shape], dtype=x.dtype), results
        )

    return function


def _with_long(program: Program, names: list[str]) -> Program:
    parameters = _parameters(program)
    args = [x.long() if name in names else x for name, x in zip(parameters, program.args, strict=False)]
    return replace(program, args=tuple(args))


def _parameters(program: Program) -> list[str]:
    import inspect

    forward = program.f.forward if isinstance(program.f, nn.Module) else program.f
    (*parameters,) = inspect.signature(forward).parameters.values()
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return [f"{parameters[0].name}[{n}]" for n in range(len(program.args))]
    return [parameter.name for parameter in parameters]


def _with_static(program: Program, names: list[str]) -> Program:
    """Return the program with dimensions, named as ``'batch'`` or ``axis 0 of x``, that are static."""
    parameters = _parameters(program)

    def is_named(dimension: Any, axis: int, parameter: str) -> bool:
        name = dimension if isinstance(dimension, str) else getattr(dimension, "__name__", None)
        return f"'{name}'" in names or f"axis {axis} of {parameter}" in names

    shapes = tuple(
        {axis: None if is_named(dimension, axis, parameter) else dimension for axis, dimension in shape.items()}
        for parameter, shape in zip(parameters, program.options["dynamic_shapes"], strict=False)
    )
    assert any(isinstance(d, str | Dim) or d is None for shape in shapes for d in shape.values())
    return program.with_(dynamic_shapes=shapes)

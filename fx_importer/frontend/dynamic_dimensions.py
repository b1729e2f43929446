"""Dynamic dimensions that are given by name, as `torch.onnx.export` takes them."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError
from fx_importer.fx_graph.programs import call_structure


def with_dimensions(dynamic_shapes: Any) -> Any:
    """Return ``dynamic_shapes`` as `torch.export.export` takes it, with dimensions for the strings in it.

    A name that occurs once becomes ``Dim.DYNAMIC``, whose range torch.export derives from the model. A name that occurs
    several times becomes a ``Dim``, so that sizes of one name are one size, which torch.export checks.

    Raises:
        UsageError: for a string that is not an identifier.
    """
    leaves, spec = pytree.tree_flatten(dynamic_shapes)
    names = Counter(leaf for leaf in leaves if isinstance(leaf, str))
    if not names:
        return dynamic_shapes
    if wrong := [repr(name) for name in names if not name.isidentifier()]:
        raise UsageError(f"dynamic_shapes names dimensions by {', '.join(wrong)}: a name is a Python identifier")
    dims = {dim.__name__: dim for dim in _dims(leaves)}
    dimensions = {name: dims.get(name) or (Dim.DYNAMIC if count == 1 else Dim(name)) for name, count in names.items()}
    return pytree.tree_unflatten([dimensions[leaf] if isinstance(leaf, str) else leaf for leaf in leaves], spec)


def _dims(leaves: list[Any]) -> Iterator[Any]:
    """Yield the named dimensions in ``leaves``: ``n`` for an expression such as ``2 * n``."""
    yield from (getattr(leaf, "root", leaf) for leaf in leaves if isinstance(leaf, Dim))


_SIZE = re.compile(r"L\['(\w+)'\]((?:\[[^\]]+\])*)\.size\(\)\[(\d+)\]")
"""torch's name of the size of an input: ``L['x'].size()[0]``, ``L['x']['key'][1].size()[0]``."""


@dataclass(frozen=True)
class InputSize:
    """A size of an input, by torch's name of it."""

    path: tuple[str | int, ...]
    """The parameter, and the keys of the tensor in its argument."""
    axis: int

    @classmethod
    def of(cls, source: str) -> InputSize | None:
        """Return the size that torch calls ``source``; None if that is not an input's."""
        match = _SIZE.fullmatch(source)
        if match is None:
            return None
        keys = re.findall(r"\[([^\]]+)\]", match[2])
        path = (int(key) if key.lstrip("-").isdigit() else key.strip("'\"") for key in keys)
        return cls((match[1], *path), int(match[3]))

    @staticmethod
    def described(text: str) -> str:
        """Return ``text`` with torch's names of sizes in words: ``axis 0 of x``."""
        return _SIZE.sub(lambda match: str(InputSize.of(match[0])), text)

    def __str__(self) -> str:
        name, *keys = self.path
        return f"axis {self.axis} of {name}{''.join(f'[{key!r}]' for key in keys)}"

    def dimension(self, shapes: Any, parameters: Sequence[str]) -> Any:
        """Return the dimension that ``shapes`` has for this size, None if that is static or not known."""
        try:
            for key in self._keys(shapes, parameters):
                shapes = shapes[key]
        except (IndexError, KeyError, TypeError, ValueError):
            return None
        return shapes

    def made_static(self, shapes: Any, parameters: Sequence[str]) -> Any:
        """Return ``shapes``, which has a `dimension` for this size, with ``Dim.STATIC`` in its place."""

        def replaced(value: Any, keys: Sequence[Any]) -> Any:
            if not keys:
                return Dim.STATIC  # torch.export logs a warning about None
            if isinstance(value, Mapping):
                return {**value, keys[0]: replaced(value[keys[0]], keys[1:])}
            return type(value)(replaced(item, keys[1:]) if n == keys[0] else item for n, item in enumerate(value))

        return replaced(shapes, self._keys(shapes, parameters))

    def _keys(self, shapes: Any, parameters: Sequence[str]) -> list[Any]:
        name, *keys = self.path
        return [name if isinstance(shapes, Mapping) else parameters.index(str(name)), *keys, self.axis]


def name_of(dimension: Any) -> str:
    """Return the user's name of a dimension; empty if it has none."""
    name = dimension if isinstance(dimension, str) else getattr(dimension, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else ""


def dimension_names(f: Any, program: ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """Return the names that ``dynamic_shapes`` gives to the symbols of ``program``, by symbol.

    ``f`` is the model or function that was exported with ``dynamic_shapes``. Of several names of one symbol, the first
    is taken. Sizes within inputs of registered types, and sizes that are an expression, name no symbol.
    """
    if dynamic_shapes is None or isinstance(f, ExportedProgram) or (structure := call_structure(program)[0]) is None:
        return {}
    inputs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    args, kwargs = pytree.tree_unflatten([values.get(input_.name) for input_ in inputs], structure)
    bound: Any = (*args, *kwargs.values())
    if isinstance(dynamic_shapes, Mapping):
        try:
            bound = inspect.signature(getattr(f, "forward", f)).bind(*args, **kwargs).arguments
        except ValueError:  # of a builtin, which is exported as a function of *args
            bound = {"args": args}
    names: dict[str, str] = {}
    for dimension, size in _sizes(dynamic_shapes, bound):
        name = name_of(dimension)
        if name and isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
            names.setdefault(str(size.node.expr), name)
    return names


def _sizes(shapes: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the dimensions in ``shapes``, the dynamic shapes of ``value``, with the sizes that they are of."""
    tensor = isinstance(value, torch.Tensor)
    parts: Any = value.shape if tensor else value
    if isinstance(shapes, Mapping) and (tensor or isinstance(value, Mapping)):
        pairs = [(shape, parts[key]) for key, shape in shapes.items()]
    elif isinstance(shapes, Sequence) and isinstance(parts, Sequence) and not isinstance(shapes, str):
        pairs = list(zip(shapes, parts, strict=False))
    else:
        return
    for shape_of_part, part in pairs:
        if tensor:
            yield shape_of_part, part
        else:
            yield from _sizes(shape_of_part, part)

"""Dynamic dimensions that are given by name, as `torch.onnx.export` takes them."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError


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


def dimension_names(f: Any, program: ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """Return the names that ``dynamic_shapes`` gives to the symbols of ``program``, by symbol.

    ``f`` is the model or function that was exported with ``dynamic_shapes``. Of several names of one symbol, the first
    is taken. Sizes within inputs of registered types, and sizes that are an expression, name no symbol.
    """
    structure = program.call_spec.in_spec
    if dynamic_shapes is None or isinstance(f, ExportedProgram) or structure is None:
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
        name = dimension if isinstance(dimension, str) else getattr(dimension, "__name__", None)
        if name and name.isidentifier() and isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
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

"""Dynamic dimensions that are given by name, as `torch.onnx.export` takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch.export import Dim
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError


def with_dimensions(dynamic_shapes: Any) -> Any:
    """Return ``dynamic_shapes`` as `torch.export.export` takes it, with dimensions for the strings in it.

    A name that occurs once becomes ``Dim.DYNAMIC``, whose range torch.export derives from the model. A name that occurs
    several times becomes a ``Dim``, so that sizes of one name are one size, which torch.export checks.

    Raises:
        UsageError: for a string that is no identifier.
    """
    leaves, spec = pytree.tree_flatten(dynamic_shapes)
    names = Counter(leaf for leaf in leaves if isinstance(leaf, str))
    if not names:
        return dynamic_shapes
    if wrong := [repr(name) for name in names if not name.isidentifier()]:
        raise UsageError(f"dynamic_shapes names dimensions by {', '.join(wrong)}: a name is a Python identifier")
    there = {dim.__name__: dim for dim in _dims(leaves)}
    found = {name: there.get(name) or (Dim.DYNAMIC if count == 1 else Dim(name)) for name, count in names.items()}
    return pytree.tree_unflatten([found[leaf] if isinstance(leaf, str) else leaf for leaf in leaves], spec)


def _dims(leaves: list[Any]) -> Iterator[Any]:
    """Yield the leaves that are dimensions with a name."""
    yield from (leaf for leaf in leaves if isinstance(leaf, Dim))

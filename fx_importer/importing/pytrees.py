"""Manifest records of nested inputs and outputs and of the types of their leaves."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.tree_paths import leaves_with_path
from fx_importer.importing.types import static_dimension
from fx_importer.manifest import Leaf, Tree, ValueType

_LARGEST = 2**63 - 1


def tree_of(spec: pytree.TreeSpec | None, *roots: str) -> Tree:
    """Return the tree of ``spec``. ``roots`` has its name, or the names of its children if there are several."""
    if spec is None:
        return Tree(None, ())
    nested = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    leaves: list[Leaf] = []
    for path, _ in leaves_with_path(nested):
        root, rest = (roots[0], path) if len(roots) == 1 else (roots[path[0].idx], path[1:])
        leaves.append(Leaf(root + pytree.keystr(rest)))
    return Tree(spec, tuple(leaves))


def value_type(example: Any) -> ValueType:
    """Return the type of an example value: a (fake) tensor, or a (symbolic) number."""
    if isinstance(example, torch.Tensor):
        dims = [static_dimension(dim) if isinstance(dim, torch.SymInt) else dim for dim in example.shape]
        shape = (str(dim) if size is None else size for size, dim in zip(dims, example.shape, strict=True))
        return ValueType(str(example.dtype).removeprefix("torch."), tuple(shape))
    if isinstance(example, (bool, torch.SymBool)):
        return ValueType("bool")
    return ValueType("float" if isinstance(example, (float, torch.SymFloat)) else "int")


def symbol_ranges(program: ExportedProgram) -> dict[str, tuple[int, int | None]]:
    """Return the symbolic dimensions of ``program`` with the range of sizes that export derived for each."""
    return {
        # A data-dependent number may be unbounded.
        str(symbol): (
            int(limits.lower) if limits.lower > -_LARGEST else -_LARGEST - 1,
            int(limits.upper) if limits.upper < _LARGEST else None,
        )
        for symbol, limits in program.range_constraints.items()
    }

"""The names of ``torch_mlir.extras.fx_importer``, for code that is written for it."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import sympy
import torch

from fx_importer.errors import UsageError
from fx_importer.importing import FxImporter, FxImporterHooks, InputInfo
from fx_importer.importing import NodeBuilder as GraphNodeImporter
from fx_importer.importing.affine_expressions import NotAffine, to_affine
from fx_importer.importing.sparse import encoding
from fx_importer.importing.types import DTYPE_CODES as TORCH_DTYPE_TO_INT
from fx_importer.importing.types import ELEMENT_TYPES as TORCH_DTYPE_TO_MLIR_TYPE_ASM
from fx_importer.importing.types import LAYOUT_CODES as TORCH_LAYOUT_TO_INT
from fx_importer.importing.types import MEMORY_FORMAT_CODES as TORCH_MEMORY_FORMAT_TO_INT
from fx_importer.importing.types import TypeCache as ContextCache
from fx_importer.mlir.bindings import ir

__all__ = [
    "TORCH_DTYPE_TO_INT",
    "TORCH_DTYPE_TO_MLIR_TYPE",
    "TORCH_DTYPE_TO_MLIR_TYPE_ASM",
    "TORCH_LAYOUT_TO_INT",
    "TORCH_MEMORY_FORMAT_TO_INT",
    "ContextCache",
    "FxImporter",
    "FxImporterHooks",
    "GraphNodeImporter",
    "InputInfo",
    "RefMapping",
    "RefTracker",
    "sparsity_encoding",
    "sympy_expr_to_semi_affine_expr",
]

TORCH_DTYPE_TO_MLIR_TYPE: Mapping[torch.dtype, Callable[[], ir.Type]] = {
    dtype: functools.partial(ir.Type.parse, text) for dtype, text in TORCH_DTYPE_TO_MLIR_TYPE_ASM.items()
}
"""Functions that return the element type of a dtype in the current context."""

_REPLACED = {
    "register_canonicalize": "it changes nodes while they are imported: write a decomposition with "
    "fx_importer.decomposes, or a handler, FxImporter(handlers=...)",
    "NODE_CANONICALIZE": "write decompositions with fx_importer.decomposes",
}

warnings.warn(
    "fx_importer.extras.fx_importer has the names of torch_mlir.extras.fx_importer: new code imports FxImporter, "
    "FxImporterHooks, InputInfo and NodeBuilder (GraphNodeImporter) from fx_importer",
    DeprecationWarning,
    stacklevel=2,
)


def __getattr__(name: str) -> NoReturn:
    if name in _REPLACED:
        raise ImportError(f"fx_importer has no {name}: {_REPLACED[name]}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def sparsity_encoding(t: torch.Tensor) -> str:
    """Return the text of the sparse encoding of ``t``. Raises `UsageError` for a strided tensor."""
    found = encoding(t)
    if found is None:
        raise UsageError("a strided tensor has no sparse encoding")
    return found


def sympy_expr_to_semi_affine_expr(expr: sympy.Expr, symbols_map: Mapping[str, ir.AffineSymbolExpr]) -> ir.AffineExpr:
    """Return ``expr``, with symbols by name, in the current context. Raises `UsageError` unless it is affine."""
    whole = sympy.sympify(expr)
    positions = {each: symbols_map[str(each)].position for each in whole.free_symbols if isinstance(each, sympy.Symbol)}
    try:
        return to_affine(whole, positions, ir.Context.current)
    except NotAffine as error:
        raise UsageError(f"'{error}' is no affine expression of sizes") from None


class RefMapping:
    """What a `RefTracker` knows of an object."""

    def __init__(self) -> None:
        self.value: Any = None
        """What the caller stores for the object."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been stored."""
        return self.value is None


class RefTracker:
    """Values by the identity of live objects."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], RefMapping]] = {}

    def track(self, referrent: Any) -> RefMapping:
        """Return the mapping of an object: a new one for a new object, also at the address of one that ended."""
        reference, mapping = self._known.get(id(referrent), (None, None))
        if reference is None or mapping is None or reference() is not referrent:
            mapping = RefMapping()
            self._known[id(referrent)] = weakref.ref(referrent), mapping
        return mapping

"""The names of ``torch_mlir.extras.fx_importer``, for code that is written for it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import sympy
import torch
from torch import fx

from fx_importer import importing
from fx_importer.errors import UsageError
from fx_importer.importing import FxImporterHooks, InputInfo
from fx_importer.importing import NodeBuilder as GraphNodeImporter
from fx_importer.importing.handlers import import_call
from fx_importer.importing.handlers.schema_operators import import_overload
from fx_importer.importing.locations import Locations
from fx_importer.importing.sparse import encoding
from fx_importer.importing.types import DTYPE_CODES as TORCH_DTYPE_TO_INT
from fx_importer.importing.types import ELEMENT_TYPES as TORCH_DTYPE_TO_MLIR_TYPE_ASM
from fx_importer.importing.types import LAYOUT_CODES as TORCH_LAYOUT_TO_INT
from fx_importer.importing.types import MEMORY_FORMAT_CODES as TORCH_MEMORY_FORMAT_TO_INT
from fx_importer.importing.types import TypeCache
from fx_importer.importing.unsupported import UnsupportedNodeError
from fx_importer.importing.value_map import Results
from fx_importer.mlir.bindings import ir
from fx_importer.symbolic.conversions import NotAffine, to_affine

__all__ = [
    "NODE_CANONICALIZE",
    "TORCH_DTYPE_TO_INT",
    "TORCH_DTYPE_TO_MLIR_TYPE",
    "TORCH_DTYPE_TO_MLIR_TYPE_ASM",
    "TORCH_DTYPE_TO_NPY_TYPE",
    "TORCH_LAYOUT_TO_INT",
    "TORCH_MEMORY_FORMAT_TO_INT",
    "ContextCache",
    "FxImporter",
    "FxImporterHooks",
    "GraphNodeImporter",
    "InputInfo",
    "RefMapping",
    "RefTracker",
    "register_canonicalize",
    "sparsity_encoding",
    "sympy_expr_to_semi_affine_expr",
]

TORCH_DTYPE_TO_MLIR_TYPE: Mapping[torch.dtype, Callable[[], ir.Type]] = {
    dtype: functools.partial(ir.Type.parse, text) for dtype, text in TORCH_DTYPE_TO_MLIR_TYPE_ASM.items()
}
"""Functions that return the element type of a dtype in the current context."""


def _numpy_types() -> dict[torch.dtype, type]:
    types: dict[torch.dtype, type] = {}
    for dtype in TORCH_DTYPE_TO_MLIR_TYPE_ASM:
        with contextlib.suppress(TypeError, NotImplementedError):  # numpy lacks the type
            types[dtype] = torch.empty(0, dtype=dtype).numpy().dtype.type
    with contextlib.suppress(ImportError):
        types[torch.bfloat16] = importlib.import_module("ml_dtypes").bfloat16
    return types


TORCH_DTYPE_TO_NPY_TYPE: Mapping[torch.dtype, type] = _numpy_types()
"""The types of numpy, of those dtypes that have one; that of bfloat16 is ml_dtypes', if it is installed."""

_Canonicalize: TypeAlias = Callable[[fx.Node], fx.Node | None]

NODE_CANONICALIZE: dict[torch._ops.OpOverload, _Canonicalize] = {}
"""The functions of `register_canonicalize`, by operator."""

warnings.warn(
    "fx_importer.extras.fx_importer has the names of torch_mlir.extras.fx_importer: new code imports FxImporter, "
    "FxImporterHooks, InputInfo and NodeBuilder (GraphNodeImporter) from fx_importer",
    DeprecationWarning,
    stacklevel=2,
)


def register_canonicalize(op: torch._ops.OpOverload) -> Callable[[_Canonicalize], _Canonicalize]:
    """Return a decorator of functions that change nodes of ``op``, for each `FxImporter` that is made afterwards.

    Such a function sets the target, the arguments and the keywords of the node, and returns it; or it returns None, and
    the node is not imported. The graph has its own node again afterwards.
    """

    def register(function: _Canonicalize) -> _Canonicalize:
        NODE_CANONICALIZE[op] = function
        return function

    return register


def _import_changed(function: _Canonicalize, node: fx.Node, build: GraphNodeImporter) -> Results:
    """Import ``node`` as ``function`` changes it."""
    before: tuple[Any, Any, Any] = node.target, node.args, node.kwargs
    try:
        if function(node) is not None:
            own = isinstance(node.target, torch._ops.OpOverload)  # whose handler may be this one
            return import_overload(node, build) if own else import_call(node, build)
        if node.users:
            raise UnsupportedNodeError(f"{function.__name__} leaves it out, but {next(iter(node.users))} uses it")
        return None
    finally:
        node.target, node.args, node.kwargs = before


def sparsity_encoding(t: torch.Tensor) -> str:
    """Return the text of the sparse encoding of ``t``. Raises `UsageError` for a strided tensor."""
    text = encoding(t)
    if text is None:
        raise UsageError("a strided tensor has no sparse encoding")
    return text


def sympy_expr_to_semi_affine_expr(expr: sympy.Expr, symbols_map: Mapping[str, ir.AffineSymbolExpr]) -> ir.AffineExpr:
    """Return ``expr``, with symbols by name, in the current context. Raises `UsageError` unless it is affine."""
    whole = sympy.sympify(expr)
    positions = {
        symbol: symbols_map[str(symbol)].position for symbol in whole.free_symbols if isinstance(symbol, sympy.Symbol)
    }
    try:
        return to_affine(whole, positions, ir.Context.current)
    except NotAffine as error:
        raise UsageError(f"'{error}' is no affine expression of sizes") from None


class RefMapping:
    """Record of a `RefTracker` about an object."""

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


class ContextCache(TypeCache):
    """The types of a context, and the locations of nodes, which a subclass may choose: set `FxImporter._cc` to it."""

    def __init__(self, context: ir.Context, *, py_attr_tracker: RefTracker | None = None):
        super().__init__(context)
        self._c = context
        self._py_attr_tracker = py_attr_tracker
        self._locations = Locations(context)

    def get_node_location(self, node: fx.Node) -> ir.Location | None:
        """Return the location of the operations of ``node``; None for an unknown one."""
        return self._locations.of(node)


class _LocationsOf(Locations):
    """The locations that a `ContextCache` returns."""

    def __init__(self, cache: ContextCache):
        super().__init__(cache.context)
        self._cache = cache

    def of(self, node: fx.Node) -> ir.Location:
        return self._cache.get_node_location(node) or self.unknown


class FxImporter(importing.FxImporter):
    """`fx_importer.FxImporter` with torch-mlir's arguments, and the attributes that integrators use.

    ``config_check`` has no effect. ``py_attr_tracker`` is kept for hooks that read it: weights are not copied, so that
    there is nothing to share between imports. Raises `UsageError` for a ``graph_node_importer_cls`` of one's own.
    """

    def __init__(
        self,
        *,
        module: ir.Module | None = None,
        context: ir.Context | None = None,
        config_check: bool = True,
        py_attr_tracker: RefTracker | None = None,
        hooks: FxImporterHooks | None = None,
        graph_node_importer_cls: type[GraphNodeImporter] | None = None,
    ):
        if graph_node_importer_cls not in (None, GraphNodeImporter):
            raise UsageError(
                "graph_node_importer_cls= is not supported: pass handlers of operators to fx_importer.FxImporter"
            )
        handlers = {op: functools.partial(_import_changed, function) for op, function in NODE_CANONICALIZE.items()}
        super().__init__(module=module, context=context, hooks=hooks, handlers=handlers)
        self._c = self.context
        self._py_attr_tracker = py_attr_tracker or RefTracker()

    @property
    def _cc(self) -> TypeCache:
        return self.types

    @_cc.setter
    def _cc(self, cache: ContextCache) -> None:
        self.types, self.locations = cache, _LocationsOf(cache)

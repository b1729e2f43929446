"""Builder that handlers use for values, constants, lists and operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fx_importer.errors import UnsupportedNode
from fx_importer.importing.constants import constant_op
from fx_importer.importing.types import TypeCache, UnknownDtype
from fx_importer.importing.unsupported import UnsupportedNodeError
from fx_importer.importing.value_map import Environment
from fx_importer.importing.weight_attributes import UnimportableTensor
from fx_importer.mlir.bindings import ir

if TYPE_CHECKING:
    from fx_importer.importing.hooks import InputInfo
    from fx_importer.importing.importer import FxImporter


class NodeBuilder:
    """Builder of the operations of one function, node by node.

    The walker sets ``location`` before each node. Constants are shared within a function.
    """

    def __init__(self, importer: FxImporter, owner: torch.nn.Module | None, block: ir.Block):
        self.fx_importer = importer
        self.types: TypeCache = importer.types
        self.environment = Environment()
        self.owner = owner
        """The module that ``get_attr`` nodes read from."""
        self.block = block
        self.location = importer.locations.unknown
        self.runtime_asserts = False
        """Whether assertions of the program become operations."""
        self.asserts_assumptions = True
        """Whether assumptions become operations, and not results of the function."""
        self.outlines: str | None = None
        """The name of the function, if graphs that it invokes are functions too."""
        self.unsupported: list[UnsupportedNode] = []
        """Unsupported nodes of subgraphs, collected by the walker."""
        self._context = importer.context
        self._point = ir.InsertionPoint(block)
        self._constants: dict[tuple[type, Any], ir.Value] = {}
        self._literals: dict[ir.Attribute, ir.Value] = {}

    # Aliases that torch-mlir's integrators use in their hooks.
    @property
    def _cc(self) -> TypeCache:
        return self.types

    @property
    def _c(self) -> ir.Context:
        return self._context

    @property
    def _b(self) -> ir.Block:
        return self.block

    @property
    def point(self) -> ir.InsertionPoint:
        """The insertion point of the next operation."""
        return self._point

    # --- operations -------------------------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        results: Sequence[ir.Type],
        operands: Sequence[ir.Value],
        attributes: Mapping[str, ir.Attribute] | None = None,
        *,
        regions: int = 0,
    ) -> ir.Operation:
        """Append the operation ``name`` at the current node's location."""
        return ir.Operation.create(
            name,
            results=results,
            operands=operands,
            attributes=attributes,
            regions=regions,
            loc=self.location,
            ip=self._point,
        )

    def torch_op(self, name: str, results: Sequence[ir.Type], operands: Sequence[ir.Value]) -> ir.Operation:
        """Append ``torch.<name>``, or ``torch.operator "torch.<name>"`` if the torch dialect lacks it."""
        full = f"torch.{name}"
        if self.fx_importer.is_registered(full):
            return self.op(full, results, operands)
        label = ir.StringAttr.get(full, context=self._context)
        return self.op("torch.operator", results, operands, {"name": label})

    def describe(self, result: ir.Value, attribute: str, dtypes: Sequence[torch.dtype]) -> None:
        """Set an attribute with torch's dtype names on the operation of ``result``."""
        names = [ir.StringAttr.get(str(dtype).removeprefix("torch."), context=self._context) for dtype in dtypes]
        result.owner.attributes[attribute] = ir.ArrayAttr.get(names, context=self._context)

    # --- values -----------------------------------------------------------------------------------------------------

    def value(self, argument: Any) -> ir.Value:
        """Return the value of a node, or of a Python constant."""
        if isinstance(argument, fx.Node):
            return self.environment.value(argument)
        return self.constant(argument)

    def values(self, arguments: Iterable[Any]) -> list[ir.Value]:
        """Return the value of each argument."""
        return [self.value(argument) for argument in arguments]

    def constant(self, value: Any) -> ir.Value:
        """Return ``value`` as a ``torch.constant.*``: None, a bool, int, float, str, dtype, layout, format or device.

        Raises:
            UnsupportedNodeError: for anything else.
        """
        key = (
            type(value),
            value if value == value and value != 0 else repr(value),
        )  # NaN differs from itself, and -0.0 equals 0.0
        value_of_key = self._constants.get(key)
        if value_of_key is None:
            value_of_key = self._constants[key] = constant_op(self, value)
        return value_of_key

    def list_of(self, elements: Sequence[ir.Value], type_: ir.Type | None = None) -> ir.Value:
        """Return a list of the elements. Its type is derived from theirs by default."""
        if type_ is None:
            try:
                type_ = self.types.list_of([element.type for element in elements])
            except TypeError as error:
                raise UnsupportedNodeError(str(error)) from None
        return self.op("torch.prim.ListConstruct", [type_], elements).result

    def literal(
        self, tensor: torch.Tensor, name: str | None = None, info: InputInfo | None = None, *, external: bool = False
    ) -> ir.Value:
        """Return a constant tensor: the value that the hooks resolve it to, or a ``torch.vtensor.literal``.

        An ``external`` one has a name and no values in the module.

        Raises:
            UnsupportedNodeError: if the tensor has no values, or values that an attribute cannot hold.
        """
        hooks = self.fx_importer.hooks
        with self.ambient():
            if info is not None and self.fx_importer.resolves_inputs:
                resolved = hooks.resolve_input(self, tensor, info)
            else:
                resolved = hooks.resolve_literal(self, tensor, info)
        if resolved is not None:
            return resolved
        try:
            weights = self.fx_importer.weights
            attribute = weights.external(tensor, name) if external and name else weights.attribute(tensor, name)
        except (UnimportableTensor, UnknownDtype) as error:
            raise UnsupportedNodeError(str(error)) from None
        result = self._literals.get(attribute)
        if result is None:
            result = self.op("torch.vtensor.literal", [self.types.of(tensor)], (), {"value": attribute}).result
            self._literals[attribute] = result
        return result

    def scalar_tensor(self, value: Any, dtype: torch.dtype) -> ir.Value:
        """Return a Python number, or the value of a scalar node, as a rank-0 tensor of ``dtype``."""
        if not isinstance(value, fx.Node):
            return self.literal(torch.tensor(value, dtype=dtype))
        scalar = self.environment.value(value)
        made = torch.float64 if str(scalar.type) == "!torch.float" else torch.int64
        tensor = self.op("torch.prim.NumToTensor.Scalar", [self.types.tensor(made, ())], [scalar]).result
        return tensor if made == dtype else self.to_dtype(tensor, (), dtype)

    def to_dtype(self, tensor: ir.Value, shape: Sequence[Any], dtype: torch.dtype) -> ir.Value:
        """Return ``tensor``, of this ``shape``, converted to ``dtype``."""
        no, none = self.constant(False), self.constant(None)
        operands = [tensor, self.constant(dtype), no, no, none]
        return self.op("torch.aten.to.dtype", [self.types.tensor(dtype, shape)], operands).result

    # --- nodes ------------------------------------------------------------------------------------------------------

    def example(self, node: fx.Node) -> Any:
        """Return the example value that export recorded for ``node``: fake tensors, symbolic scalars.

        Raises:
            UnsupportedNodeError: if there is none.
        """
        for key in ("val", "example_value"):
            if key in node.meta:
                return node.meta[key]
        raise UnsupportedNodeError(
            "the graph does not record its shape and dtype (node.meta['val']): trace it with fake tensors"
        )

    def type_of(self, node: fx.Node, *, mutable: bool = False) -> ir.Type:
        """Return the type of the value of ``node``."""
        example = self.example(node)
        try:
            if mutable:
                return self.types.tensor(example.dtype, example.shape, mutable=True)
            return self.types.of(example)
        except (TypeError, UnknownDtype) as error:
            raise UnsupportedNodeError(str(error)) from None

    def result_types(self, node: fx.Node, count: int) -> list[ir.Type]:
        """Return the types of the ``count`` results of ``node``."""
        if count == 0:
            return []
        if count == 1:
            return [self.type_of(node)]
        try:
            return [self.types.of(example) for example in self.example(node)]
        except (TypeError, UnknownDtype) as error:
            raise UnsupportedNodeError(str(error)) from None

    def attribute_of_owner(self, target: str) -> Any:
        """Return the attribute that a ``get_attr`` node reads."""
        if self.owner is None:
            raise UnsupportedNodeError(f"a bare graph has no module to read the attribute '{target}' from")
        value: Any = self.owner
        for part in target.split("."):
            value = getattr(value, part)
        return value

    # --- subgraphs --------------------------------------------------------------------------------------------------

    def is_subgraph(self, argument: Any) -> bool:
        """Return whether an argument of a higher-order operator is a graph."""
        return (
            isinstance(argument, fx.Node)
            and argument.op == "get_attr"
            and isinstance(self.attribute_of_owner(str(argument.target)), fx.GraphModule)
        )

    def inline(self, graph: Any, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Inline the graph that a ``get_attr`` node reads, applied to ``operands``, and return its results.

        The walker reports each unsupported node in it.
        """
        module = self.attribute_of_owner(graph.target)
        outer = self.environment, self.owner, self.location
        self.environment, self.owner = Environment(), module
        try:
            return self.fx_importer.import_subgraph(module.graph, self, operands)
        finally:
            self.environment, self.owner, self.location = outer

    def call(self, graph: Any, name: str, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Call the function ``name`` of the graph that a ``get_attr`` node reads. The graph is imported once."""
        function = self.fx_importer.callees.of(self.attribute_of_owner(graph.target), name, operands, self)
        passed = [operands[position] for position in function.passed]
        return list(self.op("func.call", function.results, passed, {"callee": function.symbol}).results)

    @contextmanager
    def inside(self, block: ir.Block) -> Iterator[None]:
        """Build at the end of ``block``. Constants created there are not reused outside of it."""
        outer = self._point, self._constants, self._literals
        self._point, self._constants, self._literals = ir.InsertionPoint(block), {**outer[1]}, {**outer[2]}
        try:
            yield
        finally:
            self._point, self._constants, self._literals = outer

    def as_bool(self, value: ir.Value) -> ir.Value:
        """Return a tensor of one element, or a scalar, as a ``!torch.bool``."""
        if str(value.type) == "!torch.bool":
            return value
        kind = {"!torch.int": "int", "!torch.float": "float"}.get(str(value.type), "Tensor")
        return self.op(f"torch.aten.Bool.{kind}", [self.types.parse("!torch.bool")], [value]).result

    def cast(self, value: ir.Value, type_: ir.Type) -> ir.Value:
        """Return a tensor cast to a type with more or less static shape; return other values unchanged."""
        if value.type == type_:
            return value
        return self.op("torch.tensor_static_info_cast", [type_], [value]).result

    def runtime_assert(self, condition: ir.Value, message: str) -> None:
        """Append ``torch.runtime.assert`` of a ``!torch.bool``."""
        attributes = {"message": ir.StringAttr.get(message, context=self._context)}
        self.op("torch.runtime.assert", [], [condition], attributes)

    @contextmanager
    def ambient(self) -> Iterator[None]:
        """Set context, location and insertion point for code that relies on them (hooks)."""
        with self._context, self.location, self._point:
            yield

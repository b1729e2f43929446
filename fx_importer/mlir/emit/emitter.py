"""The emitter that all others extend, and questions about the values that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from fx_importer.mlir.bindings import ir

if TYPE_CHECKING:
    from typing_extensions import Self

Size: TypeAlias = "int | ir.Value"
"""A size, an offset or an index: an int if it is static, else a value of type ``index``."""
Shape: TypeAlias = tuple["int | None", ...]
"""The sizes of a tensor type; None is a dynamic one."""


E = TypeVar("E", bound="Emitter")


class Emitter:
    """Emits operations at an insertion point and a location. Types may be given as text.

    `op` builds on ``ir.Operation.create``, not on the typed builders of the wheel's dialects: these take 1.2 times
    (``tosa.add``) to 3.4 times (``arith.constant``) as long, measured with torch-mlir 20261001, importing
    ``torch_mlir.dialects.linalg`` takes 0.1 s, and there are none for StableHLO. Ops that are emitted in several places
    have a method in the class of their dialect: `TorchOps`, `ArithOps`, `StablehloOps`, `TosaOps`, `LlvmOps`.
    """

    def __init__(
        self, point: ir.InsertionPoint, location: ir.Location, *, created: Callable[[ir.Operation], None] | None = None
    ):
        self.point = point
        self.location = location
        self.context = location.context
        self.created = created
        """Called with each operation that this emitter, or one inside a region of it, emits."""

    @classmethod
    def before(cls, op: ir.Operation) -> Self:
        """Return an emitter that inserts before ``op``, at its location."""
        return cls(ir.InsertionPoint(op), op.location)

    def using(self, emitter: type[E]) -> E:
        """Return an emitter of another class at the same insertion point and location."""
        return emitter(self.point, self.location, created=self.created)

    def inside(self, block: ir.Block) -> Self:
        """Return an emitter of the same class and location that inserts at the end of ``block``."""
        return type(self)(ir.InsertionPoint(block), self.location, created=self.created)

    # --- operations -------------------------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        results: Sequence[ir.Type | str],
        operands: Sequence[ir.Value] = (),
        attributes: Mapping[str, ir.Attribute] | None = None,
        *,
        regions: int = 0,
    ) -> ir.Operation:
        """Emit ``name``."""
        op = ir.Operation.create(
            name,
            results=[self.type(result) if isinstance(result, str) else result for result in results],
            operands=operands,
            attributes=attributes,
            regions=regions,
            loc=self.location,
            ip=self.point,
        )
        if self.created is not None:
            self.created(op)
        return op

    def value(self, name: str, result: ir.Type | str, *operands: ir.Value) -> ir.Value:
        """Emit ``name``, which has one result and no attributes, and return the result."""
        return self.op(name, [result], operands).result

    def parsed(self, text: str) -> ir.Operation:
        """Emit the operation without operands that is spelled ``text``: the bindings have no complex ``dense``."""
        made = ir.Operation.parse(text, context=self.context)
        self.point.insert(made)
        return made

    def add_block(self, region: ir.Region, types: Sequence[ir.Type]) -> ir.Block:
        """Append a block with arguments of ``types`` to ``region``."""
        return region.blocks.append(*types, arg_locs=[self.location] * len(types))

    def define_function(
        self,
        name: str,
        inputs: Sequence[ir.Type | str],
        results: Sequence[ir.Type | str] = (),
        attributes: Mapping[str, ir.Attribute] | None = None,
    ) -> tuple[Self, list[ir.Value]]:
        """Emit a private ``func.func``; return an emitter in its body, which has to return, and its arguments."""
        types, returned = (
            [self.type(kind) if isinstance(kind, str) else kind for kind in kinds] for kinds in (inputs, results)
        )
        own = {
            "sym_name": ir.StringAttr.get(name, self.context),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, returned, self.context), self.context),
            "sym_visibility": ir.StringAttr.get("private", self.context),
        }
        block = self.add_block(self.op("func.func", [], (), own | dict(attributes or {}), regions=1).regions[0], types)
        return self.inside(block), list(block.arguments)

    def call_function(
        self, function: str, results: Sequence[ir.Type | str], operands: Sequence[ir.Value]
    ) -> ir.Operation:
        """Emit ``func.call``."""
        return self.op("func.call", results, operands, {"callee": ir.FlatSymbolRefAttr.get(function, self.context)})

    def inline_block(self, block: ir.Block, arguments: Sequence[ir.Value]) -> list[ir.Value]:
        """Copy the operations of ``block`` here, with its arguments replaced; return the operands of its terminator.

        Arguments that nested regions read are replaced too.
        """
        values: dict[ir.Value, ir.Value] = dict(zip(block.arguments, arguments, strict=True))

        def substitute(op: ir.Operation) -> ir.WalkResult:
            for position, operand in enumerate(op.operands):
                op.operands[position] = values.get(operand, operand)
            return ir.WalkResult.ADVANCE

        *body, last = block.operations
        for op in body:
            copy = op.operation.clone(self.point)
            copy.walk(substitute)
            values.update(zip(op.results, copy.results, strict=True))
        returned: Sequence[ir.Value] = last.operands
        return [values.get(value, value) for value in returned]

    # --- types ------------------------------------------------------------------------------------------------------

    def type(self, text: str) -> ir.Type:
        """Return the type that is spelled ``text``."""
        return ir.Type.parse(text, self.context)

    def tensor(self, shape: Sequence[Size | None], element: ir.Type | str) -> ir.Type:
        """Return the type of tensors of ``shape``; sizes other than ints are dynamic."""
        sizes = "".join(f"{size}x" if isinstance(size, int) else "?x" for size in shape)
        return self.type(f"tensor<{sizes}{element}>")

    @staticmethod
    def shape(x: ir.Value | ir.Type) -> Shape:
        """Return the sizes of ``x``."""
        kind = ir.RankedTensorType(x.type if isinstance(x, ir.Value) else x)
        return tuple(None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank))

    @staticmethod
    def element(x: ir.Value | ir.Type) -> str:
        """Return the element type of ``x``: ``"f32"``, ``"i64"``."""
        return str(ir.RankedTensorType(x.type if isinstance(x, ir.Value) else x).element_type)

    # --- attributes -------------------------------------------------------------------------------------------------

    def i64(self, value: int) -> ir.Attribute:
        """Return an attribute of type ``i64``."""
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, self.context), value)

    def array(self, values: Sequence[int]) -> ir.Attribute:
        """Return an ``array<i64: …>``."""
        return ir.DenseI64ArrayAttr.get(list(values), self.context)

    def segments(self, *sizes: int) -> ir.Attribute:
        """Return the attribute that has the number of operands of each kind, where there may be several."""
        return ir.DenseI32ArrayAttr.get(list(sizes), self.context)

    def attribute(self, text: str) -> ir.Attribute:
        """Return the attribute that is spelled ``text``."""
        return ir.Attribute.parse(text, self.context)


def producer(value: ir.Value) -> str:
    """Return the name of the operation that ``value`` is a result of; the empty string for a block argument."""
    return "" if isinstance(value.owner, ir.Block) else value.owner.name


def is_used(value: ir.Value) -> bool:
    """Whether anything uses ``value``."""
    return any(True for _ in value.uses)


def attributes_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    """Return the attributes of ``op`` by name."""
    return {name: op.attributes[name] for name in op.attributes}


def terminator(block: ir.Block) -> ir.Operation:
    """Return the last operation of ``block``."""
    return block.operations[len(block.operations) - 1].operation


def update_function_type(function: ir.Operation | ir.OpView) -> None:
    """Set the type of ``function`` to the types of its body's arguments and returned values."""
    block = function.regions[0].blocks[0]
    inputs, results = ([value.type for value in values] for values in (block.arguments, terminator(block).operands))
    kind = ir.FunctionType.get(inputs, results, function.context)
    function.attributes["function_type"] = ir.TypeAttr.get(kind, function.context)


def replace(op: ir.Operation, *values: ir.Value) -> None:
    """Use ``values`` in place of the results of ``op``, and erase it."""
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    op.erase()


def with_element(type_: ir.Type, element: str) -> ir.Type:
    """Return the type of tensors of the shape of ``type_`` and another element type."""
    old = ir.RankedTensorType(type_)
    unknown = ir.Location.unknown(type_.context)
    return ir.RankedTensorType.get(old.shape, ir.Type.parse(element, type_.context), old.encoding, loc=unknown)

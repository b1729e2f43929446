"""Emitting loops over builtin tensors: scf, tensor, arith, and the region of another operation in their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter

Size = int | ir.Value
"""A size, an offset or a position: a number where it is known, else an ``index``."""
Body = Callable[["LoopEmitter", ir.Value, Sequence[ir.Value]], Sequence[ir.Value]]
"""Emits a turn: takes an emitter inside of the loop, the counter and the state, and returns the new state."""

_DYNAMIC = ir.ShapedType.get_dynamic_size()
_LESS = 2  # arith.cmpi's predicate, signed


class LoopEmitter(Emitter):
    """Emits the arithmetic of positions, slices and loops."""

    def __init__(self, point: ir.InsertionPoint, location: ir.Location):
        super().__init__(point, location)
        self.location = location
        self.point = point

    def inside(self, block: ir.Block) -> LoopEmitter:
        return LoopEmitter(ir.InsertionPoint(block), self.location)

    def index(self, value: Size) -> ir.Value:
        """Return ``value`` as an ``index``."""
        if isinstance(value, ir.Value):
            return value
        attribute = ir.IntegerAttr.get(ir.IndexType.get(self.context), value)
        return self.op("arith.constant", ["index"], (), {"value": attribute}).result

    def of_index(self, name: str, left: Size, right: Size) -> ir.Value:
        """Emit ``arith.<name>`` on two ``index``."""
        return self.value(f"arith.{name}", "index", self.index(left), self.index(right))

    def less(self, left: Size, right: Size) -> ir.Value:
        predicate = {"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64, self.context), _LESS)}
        return self.op("arith.cmpi", ["i1"], [self.index(left), self.index(right)], predicate).result

    def select(self, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
        return self.value("arith.select", yes.type, condition, yes, no)

    def sizes(self, tensor: ir.Value) -> list[Size]:
        """Return the size of each axis; what is dynamic is read from ``tensor``."""
        shape = ir.RankedTensorType(tensor.type).shape
        return [
            self.value("tensor.dim", "index", tensor, self.index(axis)) if size == _DYNAMIC else size
            for axis, size in enumerate(shape)
        ]

    def empty(self, sizes: Sequence[Size], element: ir.Type) -> ir.Value:
        dynamic = [size for size in sizes if isinstance(size, ir.Value)]
        return self.op("tensor.empty", [_tensor(sizes, element)], dynamic).result

    def take(self, tensor: ir.Value, *position: Size) -> ir.Value:
        """Emit ``tensor.extract``: one element."""
        element = ir.RankedTensorType(tensor.type).element_type
        return self.value("tensor.extract", element, tensor, *map(self.index, position))

    def put(self, element: ir.Value, tensor: ir.Value, *position: Size) -> ir.Value:
        """Emit ``tensor.insert``: ``tensor`` with another element."""
        return self.value("tensor.insert", tensor.type, element, tensor, *map(self.index, position))

    def slice(self, tensor: ir.Value, offsets: Sequence[Size], sizes: Sequence[Size], kept: Sequence[int]) -> ir.Value:
        """Emit ``tensor.extract_slice`` of the ``kept`` axes; along all others ``sizes`` are 1."""
        element = ir.RankedTensorType(tensor.type).element_type
        operands, attributes = self._place(offsets, sizes, 1)
        result = _tensor([sizes[axis] for axis in kept], element)
        return self.op("tensor.extract_slice", [result], [tensor, *operands], attributes).result

    def unslice(self, part: ir.Value, tensor: ir.Value, offsets: Sequence[Size], sizes: Sequence[Size]) -> ir.Value:
        """Emit ``tensor.insert_slice``: ``tensor`` with ``part`` where `slice` would take it from."""
        operands, attributes = self._place(offsets, sizes, 2)
        return self.op("tensor.insert_slice", [tensor.type], [part, tensor, *operands], attributes).result

    def _place(
        self, offsets: Sequence[Size], sizes: Sequence[Size], tensors: int
    ) -> tuple[list[ir.Value], dict[str, ir.Attribute]]:
        groups = {"offsets": offsets, "sizes": sizes, "strides": [1] * len(sizes)}
        dynamic = [[each for each in group if isinstance(each, ir.Value)] for group in groups.values()]
        segments = [*[1] * tensors, *map(len, dynamic)]
        attributes: dict[str, ir.Attribute] = {
            f"static_{name}": ir.DenseI64ArrayAttr.get(list(_static(group)), self.context)
            for name, group in groups.items()
        }
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(segments, self.context)
        return [value for group in dynamic for value in group], attributes

    def loop(self, low: Size, high: Size, step: Size, state: Sequence[ir.Value], body: Body) -> list[ir.Value]:
        """Emit ``scf.for`` and return the last state."""
        bounds = [self.index(each) for each in (low, high, step)]
        types = [value.type for value in state]
        op = self.op("scf.for", types, [*bounds, *state], regions=1)
        arguments = [ir.IndexType.get(self.context), *types]
        block = op.regions[0].blocks.append(*arguments, arg_locs=[self.location] * len(arguments))
        inside = self.inside(block)
        counter, *carried = block.arguments
        inside.op("scf.yield", [], body(inside, counter, carried))
        return list(op.results)

    def nest(
        self,
        sizes: Sequence[Size],
        state: Sequence[ir.Value],
        body: Callable[[LoopEmitter, Sequence[ir.Value], Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """Emit a loop in a loop for each of ``sizes``; ``body`` takes the counters."""
        if not sizes:
            return list(body(self, [], state))

        def turn(emit: LoopEmitter, counter: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return emit.nest(sizes[1:], carried, lambda deep, rest, values: body(deep, [counter, *rest], values))

        return self.loop(0, sizes[0], 1, state, turn)

    def elementwise(
        self,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        body: Callable[[LoopEmitter, Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """Emit a parallel ``linalg.generic`` on tensors of one shape; ``body`` takes an element of each."""
        tensors = [*inputs, *outputs]
        types = [ir.RankedTensorType(tensor.type) for tensor in tensors]
        identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(types[0].rank, self.context))
        parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>", self.context)
        attributes = {
            "indexing_maps": ir.ArrayAttr.get([identity] * len(tensors), self.context),
            "iterator_types": ir.ArrayAttr.get([parallel] * types[0].rank, self.context),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(outputs)], self.context),
        }
        op = self.op("linalg.generic", [value.type for value in outputs], tensors, attributes, regions=1)
        elements = [each.element_type for each in types]
        block = op.regions[0].blocks.append(*elements, arg_locs=[self.location] * len(elements))
        inside = self.inside(block)
        inside.op("linalg.yield", [], body(inside, list(block.arguments)))
        return list(op.results)

    def inline(self, block: ir.Block, arguments: Sequence[ir.Value]) -> list[ir.Value]:
        """Repeat the operations of ``block`` here, on ``arguments``; return what its terminator takes."""
        values: dict[ir.Value, ir.Value] = dict(zip(block.arguments, arguments, strict=True))
        *operations, last = block.operations
        for op in operations:
            copy = op.operation.clone(self.point)
            for position, operand in enumerate(op.operands):
                copy.operands[position] = values.get(operand, operand)
            values.update(zip(op.results, copy.results, strict=True))
        return [values.get(value, value) for value in last.operands]


def _static(values: Sequence[Size]) -> list[int]:
    return [_DYNAMIC if isinstance(value, ir.Value) else value for value in values]


def _tensor(sizes: Sequence[Size], element: ir.Type) -> ir.Type:
    return ir.RankedTensorType.get(_static(sizes), element, loc=ir.Location.unknown(element.context))

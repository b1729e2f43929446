"""Emitting loops over builtin tensors: scf, tensor, linalg, and copies of the regions of other operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Size
from fx_importer.mlir.emit_arith import ArithOps

Body = Callable[["LoopEmitter", ir.Value, Sequence[ir.Value]], Sequence[ir.Value]]
"""Emits a loop body: takes an emitter inside the loop, the induction variable and the iter_args; returns new ones."""

_DYNAMIC = ir.ShapedType.get_dynamic_size()


class LoopEmitter(ArithOps):
    """Emits slices of tensors, and loops over them."""

    def empty(self, sizes: Sequence[Size], element: ir.Type) -> ir.Value:
        """Emit ``tensor.empty``."""
        dynamic = [size for size in sizes if isinstance(size, ir.Value)]
        return self.op("tensor.empty", [self.tensor(sizes, element)], dynamic).result

    def fill_with_zeros(self, tensor: ir.Value) -> ir.Value:
        """Emit ``linalg.fill`` of ``tensor``."""
        element = ir.RankedTensorType(tensor.type).element_type
        if isinstance(element, ir.ComplexType):
            name, value = "complex.constant", f"[0.0 : {element.element_type}, 0.0 : {element.element_type}]"
        else:
            name, value = "arith.constant", f"{'0.0' if isinstance(element, ir.FloatType) else '0'} : {element}"
        zero = self.op(name, [element], (), {"value": self.attribute(value)}).result
        segments = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1], self.context)}
        op = self.op("linalg.fill", [tensor.type], [zero, tensor], segments, regions=1)
        block = self.add_block(op.regions[0], [element, element])
        self.inside(block).op("linalg.yield", [], [block.arguments[0]])
        return op.result

    def extract(self, tensor: ir.Value, *position: Size) -> ir.Value:
        """Emit ``tensor.extract`` of one element."""
        element = ir.RankedTensorType(tensor.type).element_type
        return self.value("tensor.extract", element, tensor, *map(self.index, position))

    def as_tensor(self, element: ir.Value) -> ir.Value:
        """Emit ``tensor.from_elements`` of rank 0."""
        return self.value("tensor.from_elements", self.tensor((), element.type), element)

    def insert(self, element: ir.Value, tensor: ir.Value, *position: Size) -> ir.Value:
        """Emit ``tensor.insert`` of one element."""
        return self.value("tensor.insert", tensor.type, element, tensor, *map(self.index, position))

    def extract_slice(
        self, tensor: ir.Value, offsets: Sequence[Size], sizes: Sequence[Size], kept: Sequence[int]
    ) -> ir.Value:
        """Emit ``tensor.extract_slice`` of the ``kept`` axes; along all others ``sizes`` are 1."""
        element = ir.RankedTensorType(tensor.type).element_type
        operands, attributes = self._slice_operands(offsets, sizes, 1)
        result = self.tensor([sizes[axis] for axis in kept], element)
        return self.op("tensor.extract_slice", [result], [tensor, *operands], attributes).result

    def insert_slice(
        self, part: ir.Value, tensor: ir.Value, offsets: Sequence[Size], sizes: Sequence[Size]
    ) -> ir.Value:
        """Emit ``tensor.insert_slice``: ``tensor`` with ``part`` where `extract_slice` takes it from."""
        operands, attributes = self._slice_operands(offsets, sizes, 2)
        return self.op("tensor.insert_slice", [tensor.type], [part, tensor, *operands], attributes).result

    def expand_leading_axis(self, tensor: ir.Value) -> ir.Value:
        """Emit ``tensor.expand_shape``: ``tensor`` with a leading axis of size 1."""
        element = ir.RankedTensorType(tensor.type).element_type
        sizes: list[Size] = [1, *self.sizes(tensor)]
        attributes = {
            "reassociation": self._leading_axis_groups(len(sizes)),
            "static_output_shape": self.array(_static(sizes)),
        }
        dynamic = [size for size in sizes if isinstance(size, ir.Value)]
        return self.op("tensor.expand_shape", [self.tensor(sizes, element)], [tensor, *dynamic], attributes).result

    def collapse_leading_axis(self, tensor: ir.Value) -> ir.Value:
        """Emit ``tensor.collapse_shape``: ``tensor`` without its leading axis, of size 1."""
        _, *shape = self.shape(tensor)
        result = self.tensor(shape, ir.RankedTensorType(tensor.type).element_type)
        attributes = {"reassociation": self._leading_axis_groups(1 + len(shape))}
        return self.op("tensor.collapse_shape", [result], [tensor], attributes).result

    def _leading_axis_groups(self, rank: int) -> ir.Attribute:
        groups = [[0, 1], *([axis] for axis in range(2, rank))] if rank > 1 else []
        axes = [ir.ArrayAttr.get([self.i64(axis) for axis in group], self.context) for group in groups]
        return ir.ArrayAttr.get(axes, self.context)

    def extract_from_leading_axis(self, tensor: ir.Value) -> ir.Value:
        """Emit ``tensor.extract_slice``: a slice of ``tensor`` without its leading axis, of size 1."""
        sizes = self.sizes(tensor)
        return self.extract_slice(tensor, [0] * len(sizes), sizes, range(1, len(sizes)))

    def insert_into_leading_axis(self, part: ir.Value, tensor: ir.Value) -> ir.Value:
        """Emit ``tensor.insert_slice``: ``tensor``, whose leading axis has size 1, with ``part`` as all it holds."""
        sizes = self.sizes(tensor)
        return self.insert_slice(part, tensor, [0] * len(sizes), sizes)

    def _slice_operands(
        self, offsets: Sequence[Size], sizes: Sequence[Size], tensors: int
    ) -> tuple[list[ir.Value], dict[str, ir.Attribute]]:
        """Return the dynamic operands, and the attributes, of a slice op that takes ``tensors`` tensors before them."""
        groups = {"offsets": offsets, "sizes": sizes, "strides": [1] * len(sizes)}
        dynamic = [[each for each in group if isinstance(each, ir.Value)] for group in groups.values()]
        segments = [*[1] * tensors, *map(len, dynamic)]
        attributes: dict[str, ir.Attribute] = {
            f"static_{name}": self.array(_static(group)) for name, group in groups.items()
        }
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(segments, self.context)
        return [value for group in dynamic for value in group], attributes

    def loop(self, low: Size, high: Size, step: Size, state: Sequence[ir.Value], body: Body) -> list[ir.Value]:
        """Emit ``scf.for`` with ``state`` as its iter_args; return its results."""
        bounds = [self.index(each) for each in (low, high, step)]
        types = [value.type for value in state]
        op = self.op("scf.for", types, [*bounds, *state], regions=1)
        arguments = [ir.IndexType.get(self.context), *types]
        block = self.add_block(op.regions[0], arguments)
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
        """Emit a loop nest, one loop for each of ``sizes``; ``body`` takes the induction variables."""
        if not sizes:
            return list(body(self, [], state))

        def outer_body(emit: LoopEmitter, counter: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return emit.nest(sizes[1:], carried, lambda deep, rest, values: body(deep, [counter, *rest], values))

        return self.loop(0, sizes[0], 1, state, outer_body)

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
        parallel = self.attribute("#linalg.iterator_type<parallel>")
        attributes = {
            "indexing_maps": ir.ArrayAttr.get([identity] * len(tensors), self.context),
            "iterator_types": ir.ArrayAttr.get([parallel] * types[0].rank, self.context),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(outputs)], self.context),
        }
        op = self.op("linalg.generic", [value.type for value in outputs], tensors, attributes, regions=1)
        elements = [each.element_type for each in types]
        block = self.add_block(op.regions[0], elements)
        inside = self.inside(block)
        inside.op("linalg.yield", [], body(inside, list(block.arguments)))
        return list(op.results)


def _static(values: Sequence[Size]) -> list[int]:
    return [_DYNAMIC if isinstance(value, ir.Value) else value for value in values]

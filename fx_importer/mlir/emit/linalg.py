"""Emitting operations on builtin tensors: linalg with its regions, and the data movement of tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Size

if TYPE_CHECKING:
    from typing_extensions import Self

_DYNAMIC = ir.ShapedType.get_dynamic_size()


class LinalgOps(ArithOps):
    """Emits tensors, their elements and slices, and structured operations on them."""

    # --- tensor -----------------------------------------------------------------------------------------------------

    def empty(self, sizes: Sequence[Size], element: ir.Type) -> ir.Value:
        """Emit ``tensor.empty``."""
        dynamic = [size for size in sizes if isinstance(size, ir.Value)]
        return self.op("tensor.empty", [self.tensor(sizes, element)], dynamic).result

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
        self,
        part: ir.Value,
        tensor: ir.Value,
        offsets: Sequence[Size],
        sizes: Sequence[Size],
        strides: Sequence[int] = (),
    ) -> ir.Value:
        """Emit ``tensor.insert_slice``: ``tensor`` with ``part`` where `extract_slice` takes it from."""
        operands, attributes = self._slice_operands(offsets, sizes, 2, strides)
        return self.op("tensor.insert_slice", [tensor.type], [part, tensor, *operands], attributes).result

    def _slice_operands(
        self, offsets: Sequence[Size], sizes: Sequence[Size], tensors: int, strides: Sequence[int] = ()
    ) -> tuple[list[ir.Value], dict[str, ir.Attribute]]:
        """Return the dynamic operands, and the attributes, of a slice op that takes ``tensors`` tensors before them."""
        groups = {"offsets": offsets, "sizes": sizes, "strides": strides or [1] * len(sizes)}
        dynamic = [[value for value in group if isinstance(value, ir.Value)] for group in groups.values()]
        segments = [*[1] * tensors, *map(len, dynamic)]
        attributes: dict[str, ir.Attribute] = {
            f"static_{name}": self.array(_static(group)) for name, group in groups.items()
        }
        attributes["operandSegmentSizes"] = self.segments(*segments)
        return [value for group in dynamic for value in group], attributes

    def expand_shape(self, tensor: ir.Value, groups: Sequence[Sequence[int]], sizes: Sequence[Size]) -> ir.Value:
        """Emit ``tensor.expand_shape`` to ``sizes``; ``groups`` has the axes of the result for each of ``tensor``."""
        dynamic = [size for size in sizes if isinstance(size, ir.Value)]
        attributes = {"reassociation": self._groups(groups), "static_output_shape": self.array(_static(sizes))}
        result = self.tensor(sizes, ir.RankedTensorType(tensor.type).element_type)
        return self.op("tensor.expand_shape", [result], [tensor, *dynamic], attributes).result

    def collapse_shape(self, tensor: ir.Value, groups: Sequence[Sequence[int]], result: ir.Type) -> ir.Value:
        """Emit ``tensor.collapse_shape``; ``groups`` has the axes of ``tensor`` for each of the result."""
        return self.op("tensor.collapse_shape", [result], [tensor], {"reassociation": self._groups(groups)}).result

    def _groups(self, groups: Sequence[Sequence[int]]) -> ir.Attribute:
        axes = [ir.ArrayAttr.get([self.i64(axis) for axis in group], self.context) for group in groups]
        return ir.ArrayAttr.get(axes, self.context)

    # --- linalg -----------------------------------------------------------------------------------------------------

    def structured(
        self,
        name: str,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        body: Callable[[Self, Sequence[ir.Value]], Sequence[ir.Value]],
        attributes: Mapping[str, ir.Attribute],
    ) -> list[ir.Value]:
        """Emit ``linalg.<name>``; ``body`` takes an emitter in its region, and an element of each operand."""
        operands = [*inputs, *outputs]
        op = self.op(f"linalg.{name}", [output.type for output in outputs], operands, attributes, regions=1)
        types = [operand.type for operand in operands]
        elements = [type_.element_type if isinstance(type_, ir.RankedTensorType) else type_ for type_ in types]
        block = self.add_block(op.regions[0], elements)
        inside = self.inside(block)
        inside.op("linalg.yield", [], body(inside, list(block.arguments)))
        return list(op.results)

    def generic(
        self,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        maps: Sequence[ir.AffineMap],
        body: Callable[[Self, Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """Emit a ``linalg.generic`` whose loops are parallel; ``maps`` has the indexing map of each tensor."""
        parallel = self.attribute("#linalg.iterator_type<parallel>")
        attributes = {
            "indexing_maps": self.affine_maps(maps),
            "iterator_types": ir.ArrayAttr.get([parallel] * maps[0].n_dims, self.context),
            "operandSegmentSizes": self.segments(len(inputs), len(outputs)),
        }
        return self.structured("generic", inputs, outputs, body, attributes)

    def elementwise(
        self,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        body: Callable[[Self, Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """Emit a parallel ``linalg.generic`` on tensors of one shape; ``body`` takes an element of each."""
        identity = ir.AffineMap.get_identity(ir.RankedTensorType(outputs[0].type).rank, self.context)
        return self.generic(inputs, outputs, [identity] * (len(inputs) + len(outputs)), body)

    def fill(self, scalar: ir.Value, tensor: ir.Value) -> ir.Value:
        """Emit ``linalg.fill`` of ``tensor``."""
        segments = {"operandSegmentSizes": self.segments(1, 1)}
        return self.structured("fill", [scalar], [tensor], lambda _, elements: elements[:1], segments)[0]

    def fill_with_zeros(self, tensor: ir.Value) -> ir.Value:
        """Emit ``linalg.fill`` of ``tensor`` with zeros."""
        element = ir.RankedTensorType(tensor.type).element_type
        if isinstance(element, ir.ComplexType):
            value = self.attribute(f"[0.0 : {element.element_type}, 0.0 : {element.element_type}]")
            return self.fill(self.op("complex.constant", [element], (), {"value": value}).result, tensor)
        return self.fill(self.constant_scalar(0, element), tensor)

    def affine_maps(self, maps: Sequence[ir.AffineMap]) -> ir.Attribute:
        """Return the attribute that has the indexing map of each tensor of a structured operation."""
        return ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps], self.context)

    def select_axes(self, rank: int, axes: Sequence[int | None]) -> ir.AffineMap:
        """Return the map from ``rank`` axes to some of them; None is the constant 0."""
        zero = ir.AffineConstantExpr.get(0, self.context)
        read = [zero if axis is None else ir.AffineDimExpr.get(axis, self.context) for axis in axes]
        return ir.AffineMap.get(rank, 0, read, self.context)


def _static(values: Sequence[Size]) -> list[int]:
    return [_DYNAMIC if isinstance(value, ir.Value) else value for value in values]

"""The base of `TargetEmitter`: operands, broadcasting, and the operations that each target emits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import torch

from fx_importer.lowerings.module_builder import Builder, CannotEmit, Number
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Shape

Operand: TypeAlias = ir.Value | Number


class EmitterBase(Builder, ABC):
    """Emits constants, with operands broadcast and of one element type. Subclasses implement a target."""

    def __init__(self, point: ir.InsertionPoint, location: ir.Location, results: Sequence[ir.Type] = ()):
        super().__init__(point, location)
        self.results = tuple(results)
        """The types of the results of the operator, by its fake implementation."""

    def constant(self, value: torch.Tensor | Number, element: str | None = None) -> ir.Value:
        """Emit a constant: a tensor, or a number as a tensor of rank 0, converted to ``element`` if given."""
        dense = self.dense(value, element)
        return self._constant(dense, dense.type)

    def _operands(self, operands: Sequence[Operand]) -> list[ir.Value]:
        """Return operands of one element type: numbers become constants of that of the first tensor."""
        tensors = [each for each in operands if isinstance(each, ir.Value)]
        if not tensors:
            raise CannotEmit("one of the operands has to be a tensor")
        element = self.element(tensors[0])
        if other := [each for each in tensors if self.element(each) != element]:
            raise CannotEmit(f"operands of {element} and {self.element(other[0])}: cast one of them")
        return [each if isinstance(each, ir.Value) else self.constant(each, element) for each in operands]

    def _broadcast_shape(self, tensors: Sequence[ir.Value]) -> Shape:
        shapes = [self.shape(each) for each in tensors]
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        result: list[int | None] = []
        for sizes in zip(*padded, strict=True):
            known = {size for size in sizes if size not in (1, None)}
            if len(known) > 1:
                raise CannotEmit(f"shapes {', '.join(str(list(each)) for each in shapes)} do not broadcast")
            result.append(known.pop() if known else None if None in sizes else 1)
        return tuple(result)

    def _elementwise(self, name: str, operands: Sequence[Operand], element: str | None = None) -> ir.Value:
        tensors = self._operands(operands)
        kind = self.tensor(self._broadcast_shape(tensors), element or self.element(tensors[0]))
        return self._map(name, tensors, kind)

    @abstractmethod
    def _constant(self, value: ir.Attribute, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _map(self, name: str, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
        """Emit an elementwise operation; its operands broadcast to ``kind``."""

    @abstractmethod
    def _reshape(self, x: ir.Value, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _transpose(self, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _broadcast(self, x: ir.Value, like: ir.Value, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _concat(self, tensors: Sequence[ir.Value], axis: int, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _slice(self, x: ir.Value, starts: Sequence[int], kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _reduce(self, name: str, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        """Emit a reduction; ``kind`` has the reduced axes with size 1, or lacks them."""

    @abstractmethod
    def _matmul(self, x: ir.Value, y: ir.Value, kind: ir.Type) -> ir.Value: ...

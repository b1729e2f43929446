"""The base of the emitters of all targets: types, constants, single operations, and inlined MLIR text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Shape as Shape
from fx_importer.mlir.walk import operations
from fx_importer.rewrites.torch.region_types import TypeConverter

Number: TypeAlias = bool | int | float

ELEMENTS = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.bool: "i1",
}
"""Element types of constants by torch dtype."""
_DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}


class CannotEmit(Exception):
    """A rule emits something invalid, or unsupported by the target; the message is a sentence."""


class Builder(TypeConverter):
    """Emits and verifies operations, and can erase all of them."""

    def __init__(self, point: ir.InsertionPoint, location: ir.Location):
        super().__init__(point, location)
        self._emitted: list[ir.Operation] = []

    # --- types and constants ----------------------------------------------------------------------------------------

    @staticmethod
    def is_float(x: ir.Value) -> bool:
        """Whether the elements of ``x`` are floating-point numbers."""
        return bool(re.match(r"b?f\d", Builder.element(x)))

    def dense(self, value: torch.Tensor | Number, element: str | None = None) -> ir.Attribute:
        """Return a tensor, or a number as a tensor of rank 0, as an attribute, converted to ``element`` if given."""
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
        element = ELEMENTS.get(tensor.dtype) if element is None else element
        if element not in _DTYPES:
            raise CannotEmit(f"constants are of {', '.join(_DTYPES)}, and not of {element or tensor.dtype}")
        bits = tensor.detach().to(_DTYPES[element]).contiguous()
        bits = bits.view(torch.int16) if bits.dtype is torch.bfloat16 else bits  # numpy has no bfloat16
        kind = self.tensor(tensor.shape, element)
        return ir.DenseElementsAttr.get(np.ascontiguousarray(bits.numpy()), type=kind, context=self.context)

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
        """Emit the operation ``name``. One with regions is verified by `verify`, when these are filled.

        Raises:
            CannotEmit: if it is invalid.
        """
        try:
            made = super().op(name, results, operands, attributes, regions=regions)
            self._emitted.append(made)
            if not regions:
                made.verify()
        except ir.MLIRError as error:
            raise CannotEmit(_error_text(error)) from None
        return made

    def verify(self) -> None:
        """Verify the emitted operations that have regions. Raises `CannotEmit` if one is invalid."""
        try:
            for each in self._emitted:
                if len(each.regions):
                    each.verify()
        except ir.MLIRError as error:
            raise CannotEmit(_error_text(error)) from None

    def inline(self, text: str, *operands: ir.Value) -> list[ir.Value]:
        """Inline a function, given as MLIR text, on ``operands``; return its results.

        Raises:
            CannotEmit: if the text is no function, or one with other argument types.
        """
        try:
            module = ir.Module.parse(text, self.context)
        except ir.MLIRError as error:
            raise CannotEmit(f"the text is not MLIR: {_error_text(error)}") from None
        functions = [each for each in module.body.operations if isinstance(each, func_d.FuncOp)]
        block = functions[0].entry_block if len(functions) == 1 and not functions[0].is_external else None
        if block is None:
            raise CannotEmit("the text has to hold one function, with a body")
        wanted, given = [each.type for each in block.arguments], [each.type for each in operands]
        if wanted != given:
            texts = [", ".join(map(str, types)) for types in (wanted, given)]
            raise CannotEmit(f"the function of the text takes ({texts[0]}), and is given ({texts[1]})")
        known = dict(zip(block.arguments, operands, strict=True))
        *body, end = block.operations
        for each in body:
            copy = self._clone(each.operation, known)
            known.update(zip(each.results, copy.results, strict=True))
        return [known[value] for value in end.operands]

    def _clone(self, op: ir.Operation, known: Mapping[ir.Value, ir.Value]) -> ir.Operation:
        """Emit a clone of ``op`` with operands replaced by ``known``, also in its regions."""
        copy = op.clone(ip=self.point)
        self._emitted.append(copy)
        for each in operations(copy):
            for position, operand in enumerate(each.operands):
                if operand in known:
                    each.operands[position] = known[operand]
        return copy

    def erase(self) -> None:
        """Erase all emitted operations."""
        while self._emitted:
            self._emitted.pop().erase()


def _error_text(error: ir.MLIRError) -> str:
    return "; ".join(each.message for each in error.error_diagnostics) or str(error)


def product(sizes: Sequence[int | None]) -> int:
    """Return the number of elements of a tensor of static sizes."""
    result = 1
    for size in sizes:
        result *= size or 0
    return result


def extreme(element: str, *, least: bool) -> Number:
    """Return the smallest (``least``) or the largest value of an element type."""
    if element == "i1":
        return not least
    if not element.startswith("i"):
        return float("-inf") if least else float("inf")
    bound = 2 ** (int(element[1:]) - 1)
    return -bound if least else bound - 1

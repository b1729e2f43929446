"""Emitting operations at a place."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fx_importer.mlir.bindings import ir


class Emitter:
    """Emits operations at an insertion point and a location. Types may be given as text."""

    def __init__(self, point: ir.InsertionPoint, location: ir.Location):
        self._point = point
        self._location = location
        self.context = location.context

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
        return ir.Operation.create(
            name,
            results=[self.type(each) if isinstance(each, str) else each for each in results],
            operands=operands,
            attributes=attributes,
            regions=regions,
            loc=self._location,
            ip=self._point,
        )

    def value(self, name: str, result: ir.Type | str, *operands: ir.Value) -> ir.Value:
        """Emit ``name``, which has one result and no attributes, and return the result."""
        return self.op(name, [result], operands).result

    def type(self, text: str) -> ir.Type:
        return ir.Type.parse(text, self.context)

    def integer(self, value: int) -> ir.Value:
        """Emit a ``!torch.int``."""
        attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64, self.context), value)
        return self.op("torch.constant.int", ["!torch.int"], (), {"value": attribute}).result

    def boolean(self, value: bool) -> ir.Value:
        """Emit a ``!torch.bool``."""
        attribute = ir.BoolAttr.get(value, self.context)
        return self.op("torch.constant.bool", ["!torch.bool"], (), {"value": attribute}).result

    def rank_zero(self, value: int, dtype: str) -> ir.Value:
        """Emit a rank-0 torch tensor of the integer type ``dtype``, spelled as MLIR does."""
        attribute = ir.Attribute.parse(f"dense<{value}> : tensor<{dtype}>", self.context)
        return self.op("torch.vtensor.literal", [f"!torch.vtensor<[],{dtype}>"], (), {"value": attribute}).result


def producer(value: ir.Value) -> str:
    """Return the name of the operation that ``value`` is a result of; of a block's argument, nothing."""
    return "" if isinstance(value.owner, ir.Block) else value.owner.name


def operations(module: ir.Operation, names: Container[str]) -> list[ir.Operation]:
    """Return the operations of these names in ``module``, in regions too, before anything is changed."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in names:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    return found


def is_used(value: ir.Value) -> bool:
    return any(True for _ in value.uses)


def constant_of(value: ir.Value) -> int | None:
    """Return the value of a ``torch.constant.int`` or ``torch.constant.bool``."""
    if producer(value) not in ("torch.constant.int", "torch.constant.bool"):
        return None
    found = ir.IntegerAttr(value.owner.attributes["value"]).value
    return found if producer(value) == "torch.constant.int" else int(found != 0)

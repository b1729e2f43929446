"""Emitting constants of the torch dialect, and reading them."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, producer
from fx_importer.mlir.types import TorchTensor


class TorchOps(Emitter):
    """Emits operations of the torch dialect."""

    def integer(self, value: int) -> ir.Value:
        """Emit a ``!torch.int``."""
        return self.op("torch.constant.int", ["!torch.int"], (), {"value": self.i64(value)}).result

    def boolean(self, value: bool) -> ir.Value:
        """Emit a ``!torch.bool``."""
        attribute = ir.BoolAttr.get(value, self.context)
        return self.op("torch.constant.bool", ["!torch.bool"], (), {"value": attribute}).result

    def rank_zero(self, value: int, dtype: str) -> ir.Value:
        """Emit a rank-0 torch tensor of the integer type ``dtype``, spelled as MLIR does."""
        attribute = self.attribute(f"dense<{value}> : tensor<{dtype}>")
        return self.op("torch.vtensor.literal", [str(TorchTensor((), dtype))], (), {"value": attribute}).result


def constant_of(value: ir.Value) -> int | None:
    """Return the value of a ``torch.constant.int`` or ``torch.constant.bool``; None for anything else."""
    if producer(value) not in ("torch.constant.int", "torch.constant.bool"):
        return None
    number = ir.IntegerAttr(value.owner.attributes["value"]).value
    return number if producer(value) == "torch.constant.int" else int(number != 0)

"""The operations that a user's rule has emitted: verified, inlined from text, and erased if the rule does not match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fx_importer.lowerings.constants import CannotEmit
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.walk import operations


class EmittedOperations:
    """Verifies operations as they are emitted, and can erase all of them."""

    def __init__(self) -> None:
        self._operations: list[ir.Operation] = []

    def add(self, op: ir.Operation) -> None:
        """Record ``op``. One with regions is verified by `verify`, when these are filled.

        Raises:
            CannotEmit: if it is invalid.
        """
        self._operations.append(op)
        if not op.regions:
            _verify(op)

    def verify(self) -> None:
        """Verify the operations that have regions. Raises `CannotEmit` if one is invalid."""
        for op in self._operations:
            if op.regions:
                _verify(op)

    def erase(self) -> None:
        """Erase all operations."""
        while self._operations:
            self._operations.pop().erase()

    def inline(self, emit: Emitter, text: str, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Inline the function ``text`` where ``emit`` emits, on ``operands``; return its results.

        Raises:
            CannotEmit: if the text is not a function, or one with other argument types.
        """
        try:
            module = ir.Module.parse(text, emit.context)
        except ir.MLIRError as error:
            raise CannotEmit(f"the text is not MLIR: {error_text(error)}") from None
        functions = [operation for operation in module.body.operations if isinstance(operation, func_d.FuncOp)]
        block = functions[0].entry_block if len(functions) == 1 and not functions[0].is_external else None
        if block is None:
            raise CannotEmit("the text has to hold one function, with a body")
        wanted, passed = [argument.type for argument in block.arguments], [operand.type for operand in operands]
        if wanted != passed:
            texts = [", ".join(map(str, types)) for types in (wanted, passed)]
            raise CannotEmit(f"the function of the text takes ({texts[0]}), and is given ({texts[1]})")
        known = dict(zip(block.arguments, operands, strict=True))
        *body, end = block.operations
        for op in body:
            copy = self._clone(op.operation, known, emit.point)
            known.update(zip(op.results, copy.results, strict=True))
        return [known[value] for value in end.operands]

    def _clone(self, op: ir.Operation, known: Mapping[ir.Value, ir.Value], point: ir.InsertionPoint) -> ir.Operation:
        """Insert a clone of ``op`` with operands replaced by ``known``, also in its regions."""
        copy = op.clone(ip=point)
        self._operations.append(copy)
        for inner in operations(copy):
            for position, operand in enumerate(inner.operands):
                if operand in known:
                    inner.operands[position] = known[operand]
        return copy


def _verify(op: ir.Operation) -> None:
    try:
        op.verify()
    except ir.MLIRError as error:
        raise CannotEmit(error_text(error)) from None


def error_text(error: ir.MLIRError) -> str:
    """Return the messages of MLIR's diagnostics."""
    return "; ".join(diagnostic.message for diagnostic in error.error_diagnostics) or str(error)

"""Stubs of operators: functions that a module declares without a body."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from fx_importer.diagnostics.causes import Place
from fx_importer.manifest import STUB_ATTRIBUTE, OperatorStub
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.walk import operations
from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class StubDefinition:
    """The computation of the operator that a stub stands for."""

    call: str
    """The operator, with its types."""
    module: ir.Module | None
    """A module of one function, in the torch dialect; None if legalization changed the dtypes of the operator, so that
    it is not the model's."""
    into: OutputType | None = None
    """The output type that it has to be lowered to, if a user's lowering made it; None for any."""


class OperatorStubs:
    """The operator stubs of a module, one for all calls of the same operator on the same types."""

    def __init__(self, module: ir.Operation):
        self._block = module.regions[0].blocks[0]
        self._names: set[str] = set()
        self._known: dict[tuple[str, str], str] = {}
        for op in self._block.operations:
            if isinstance(op, func_d.FuncOp):
                self._names.add(op.name.value)
                if STUB_ATTRIBUTE in op.attributes:
                    text = ir.StringAttr(op.attributes[STUB_ATTRIBUTE]).value
                    self._known[text, str(op.type)] = op.name.value

    def call(
        self,
        stub: OperatorStub,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        names: Iterable[str],
        attributes: Mapping[str, ir.Attribute] = MappingProxyType({}),
    ) -> ir.Operation:
        """Emit a call of ``stub`` at the current insertion point and location.

        The function is declared with ``attributes`` if it is not yet, under the first of ``names`` that is free.
        """
        kind = ir.FunctionType.get([operand.type for operand in operands], list(results))
        key = (stub.to_json(), str(kind))
        if key not in self._known:
            name = next(name for name in names if name not in self._names)
            with ir.InsertionPoint(self._block):
                made = func_d.FuncOp(name, kind, visibility="private")
            for attribute, value in {STUB_ATTRIBUTE: ir.StringAttr.get(key[0]), **attributes}.items():
                made.attributes[attribute] = value
            self._names.add(name)
            self._known[key] = name
        callee = {"callee": ir.FlatSymbolRefAttr.get(self._known[key])}
        emit = Emitter(ir.InsertionPoint.current, ir.Location.current)
        return emit.op("func.call", results, operands, callee)


def stubs_in(module: ir.Operation) -> dict[str, OperatorStub]:
    """Return the operator stubs of ``module`` by the names of their functions, with the places of their calls."""
    stubs: dict[str, OperatorStub] = {}
    for op in module.regions[0].blocks[0].operations:
        if isinstance(op, func_d.FuncOp) and STUB_ATTRIBUTE in op.attributes:
            stubs[op.name.value] = OperatorStub.from_json(ir.StringAttr(op.attributes[STUB_ATTRIBUTE]).value)
    places = places_of_calls(module) if stubs else {}
    return {name: replace(stub, places=tuple(map(str, places[name]))) for name, stub in stubs.items()}


def places_of_calls(module: ir.Operation) -> defaultdict[str, list[Place]]:
    """Return the places in the user's model where functions are called, by the names of the functions."""
    places: defaultdict[str, list[Place]] = defaultdict(list)
    for op in operations(module, ("func.call",)):
        places[ir.FlatSymbolRefAttr(op.attributes["callee"]).value].append(Place.of(op.location))
    return places

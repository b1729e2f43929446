"""Outlining of unsupported operators: calls of stubs that the module declares and does not define."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch._ops import OpOverload

from fx_importer.fx_graph.operators import operator_named
from fx_importer.manifest import OperatorArgument, OperatorStub, Passed, Returned, ValueType
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.declarations import OperatorStubs, StubDefinition
from fx_importer.mlir.emit.emitter import Emitter, attributes_of, is_used
from fx_importer.mlir.types import TorchTensor
from fx_importer.mlir.walk import operations
from fx_importer.probing.operator_modules import call_of, maker_of, overload

_SCALARS = {"!torch.int": "int", "!torch.float": "float", "!torch.bool": "bool"}


class _NotOutlinable(Exception):
    """The operator cannot be replaced by a call of a stub."""


def outline(module: ir.Operation, calls: Collection[str]) -> dict[str, StubDefinition]:
    """Replace the operators of ``module`` that ``calls`` describes by calls of stubs, in place.

    ``module`` is in the torch dialect. There is one private function for equal operators with equal types. It takes and
    returns tensors: lists are unpacked, and constants are in the record.

    Operators that mutate arguments, have regions, or take or return other values than tensors and scalars are kept.

    Returns:
        The definitions of the new functions, by name.
    """
    outlined = [
        op
        for op in operations(module)
        if op.name.startswith("torch.") and any(map(is_used, op.results)) and call_of(op) in calls
    ]
    stubs = OperatorStubs(module)
    definitions: dict[str, StubDefinition] = {}
    for op in outlined:
        try:
            _replace(op, stubs, definitions)
        except _NotOutlinable:
            continue
    return definitions


@dataclass
class _CallSite:
    """Operands of one call, unpacked."""

    dtypes: Iterator[str] | None = None
    """The model's dtypes of the tensors, in order, where legalization changed them."""
    operands: list[ir.Value] = field(default_factory=list)
    takes: list[ValueType] = field(default_factory=list)

    def argument(self, value: ir.Value) -> OperatorArgument:
        """Return an argument of the operator, and record the function arguments that it needs."""
        maker = maker_of(value)
        kind = str(value.type)
        name = maker.name if maker else ""
        if maker and name.startswith("torch.constant."):
            return _constant(maker)
        if maker and name == "torch.prim.ListConstruct":
            return tuple(self.argument(operand) for operand in maker.operands)
        if maker and name == "torch.derefine":
            return self.argument(maker.operands[0])
        if kind in _SCALARS:
            self.takes.append(ValueType(_SCALARS[kind]))
        else:
            self.takes.append(self.tensor(value))
        self.operands.append(value)
        return Passed(len(self.operands) - 1)

    def tensor(self, value: ir.Value) -> ValueType:
        """Return the model's type of the next tensor, ``value``."""
        kind = _tensor_type(value.type)
        if self.dtypes is None:
            return kind
        dtype, shape = next(self.dtypes, None), kind.shape or ()
        if dtype is None:
            raise _NotOutlinable
        paired = dtype.startswith("complex") and not kind.dtype.startswith("complex")
        return ValueType(dtype, shape[:-1] if paired else shape)


def _replace(op: ir.Operation, stubs: OperatorStubs, defined: dict[str, StubDefinition]) -> None:
    """Replace ``op`` by a call, and record the definition. Raises `_NotOutlinable` before anything is changed."""
    name = overload(op)
    schema = _schema(name)
    site = _CallSite(_model_dtypes(op))
    arguments = tuple(site.argument(operand) for operand in op.operands)
    results = [
        entry
        for position, result in enumerate(op.results)
        for entry in _results(result, () if len(schema.returns) == 1 else (position,))
    ]
    if site.dtypes is not None and any(map(_is_list, op.results)):
        raise _NotOutlinable  # unused elements of the list have no recorded dtype
    returned = tuple(Returned(site.tensor(value), path) for value, path in results)
    stub = OperatorStub(name, arguments, tuple(site.takes), returned)
    stem = "fallback_" + re.sub(r"\W", "_", name)
    with op.context, op.location, ir.InsertionPoint(op):
        operands = [_as_tensor(Emitter.before(op), operand) for operand in site.operands]
        numbered = (f"{stem}_{i}" for i in itertools.count())
        call = stubs.call(stub, operands, [value.type for value, _ in results], numbered)
    name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
    if name not in defined:
        same = site.dtypes is None
        computed = _definition(name, op, site.operands, [value for value, _ in results]) if same else None
        defined[name] = StubDefinition(call_of(op), computed)
    for (value, _), new in zip(results, call.results, strict=True):
        value.replace_all_uses_with(new)
    for user in {use.owner for result in op.results for use in result.uses}:  # operations that unpack lists
        user.erase()
    op.erase()


def _definition(name: str, op: ir.Operation, operands: Sequence[ir.Value], results: Sequence[ir.Value]) -> ir.Module:
    """Return a module with a function that computes ``results`` of ``op``; scalar ``operands`` are tensors there."""
    module = ir.Module.create(op.location)
    known: dict[ir.Value, ir.Value] = {}

    def copied(value: ir.Value) -> ir.Value:
        if value not in known:
            maker = maker_of(value)
            assert maker is not None  # function arguments are operands
            types = [result.type for result in maker.results]
            new = emit.op(maker.name, types, [copied(operand) for operand in maker.operands], attributes_of(maker))
            known.update(zip(maker.results, new.results, strict=True))
        return known[value]

    with op.context, op.location, ir.InsertionPoint(module.body):
        types = [_tensor_of(operand) for operand in operands], [result.type for result in results]
        function = func_d.FuncOp(name, ir.FunctionType.get(*types))
        for attribute in (attributes := _function_of(op).attributes):
            if attribute.startswith("torch."):
                function.attributes[attribute] = attributes[attribute]
        emit = Emitter(ir.InsertionPoint(function.add_entry_block()), op.location)
        for value, argument in zip(operands, function.entry_block.arguments, strict=True):
            known[value] = argument if argument.type == value.type else _as_number(emit, argument, value.type)
        emit.op("func.return", [], [copied(result) for result in results])
    return module


def _function_of(op: ir.Operation) -> ir.Operation:
    while op.name != "func.func":
        assert op.parent is not None  # operators are inside of functions
        op = op.parent.operation
    return op


def _model_dtypes(op: ir.Operation) -> Iterator[str] | None:
    if "fx_importer.dtypes" not in op.attributes:
        return None
    return iter([ir.StringAttr(attribute).value for attribute in ir.ArrayAttr(op.attributes["fx_importer.dtypes"])])


def _schema(name: str) -> Any:
    """Return the schema of an overload. Raises `_NotOutlinable` if it is unknown or mutates its arguments."""
    operator = operator_named(name)
    if not isinstance(operator, OpOverload) or operator._schema.is_mutable:
        raise _NotOutlinable
    return operator._schema


def _constant(op: ir.Operation) -> OperatorArgument:
    kind = op.name.rpartition(".")[2]
    if kind == "none":
        return None
    value: Any = op.attributes["value"]
    match kind:
        case "bool":
            return bool(ir.IntegerAttr(value).value)
        case "int":
            return ir.IntegerAttr(value).value
        case "float":
            return ir.FloatAttr(value).value
        case "str" | "device":
            return ir.StringAttr(value).value
    raise _NotOutlinable


def _results(value: ir.Value, path: tuple[int, ...]) -> list[tuple[ir.Value, tuple[int, ...]]]:
    """Return the used tensors of a result with their paths in it; lists are unpacked."""
    if not _is_list(value):
        return [(value, path)]
    uses: list[tuple[ir.Value, tuple[int, ...]]] = []
    for user in [use.owner for use in value.uses]:
        if user.name == "torch.prim.ListUnpack":
            uses += [(result, (*path, i)) for i, result in enumerate(user.results)]
        elif user.name == "torch.aten.__getitem__.t" and (index := maker_of(user.operands[1])):
            uses.append((user.results[0], (*path, ir.IntegerAttr(index.attributes["value"]).value)))
        else:
            raise _NotOutlinable
    return uses


def _is_list(value: ir.Value) -> bool:
    return str(value.type).startswith("!torch.list")


def _tensor_type(kind: ir.Type) -> ValueType:
    """Return the type of a tensor. Raises `_NotOutlinable` for other values, mutable tensors and unranked tensors."""
    tensor = TorchTensor.read(kind)
    if tensor is None or tensor.mutable or tensor.encoding:
        raise _NotOutlinable
    return ValueType(_dtype(tensor.element), tuple("?" if size is None else size for size in tensor.shape))


def _dtype(element: str) -> str:
    """Return torch's dtype name of an element type of the torch dialect."""
    if element == "i1":
        return "bool"
    if element == "bf16":
        return "bfloat16"
    if match_ := re.fullmatch(r"complex<f(\d+)>", element):
        return f"complex{2 * int(match_[1])}"
    if match_ := re.fullmatch(r"f8(\w+)", element):
        return f"float8_{match_[1].lower()}"
    if match_ := re.fullmatch(r"([su]i|f)(\d+)", element):
        return {"si": "int", "ui": "uint", "f": "float"}[match_[1]] + match_[2]
    raise _NotOutlinable


def _as_tensor(emit: Emitter, value: ir.Value) -> ir.Value:
    """Return a scalar as a rank-0 tensor, since output types differ in their scalar types."""
    if str(value.type) not in _SCALARS:
        return value
    return emit.value("torch.prim.NumToTensor.Scalar", _tensor_of(value), value)


def _tensor_of(value: ir.Value) -> ir.Type:
    """Return the tensor type that ``value`` has or is passed as."""
    kind = _SCALARS.get(str(value.type))
    if kind is None:
        return value.type
    return TorchTensor((), {"int": "si64", "float": "f64", "bool": "i1"}[kind]).mlir(value.context)


def _as_number(emit: Emitter, tensor: ir.Value, kind: ir.Type) -> ir.Value:
    """Return the scalar of type ``kind`` that the rank-0 ``tensor`` was passed for."""
    read = {"int": "Int", "float": "Float", "bool": "Bool"}[_SCALARS[str(kind)]]
    return emit.value(f"torch.aten.{read}.Tensor", kind, tensor)

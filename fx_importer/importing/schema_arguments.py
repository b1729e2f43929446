"""Import plans of operator schemas: the conversion of each argument to a value. Cached per overload."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx

from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.mlir.bindings import ir

Convert = Callable[[NodeBuilder, Any], ir.Value]


@dataclass(frozen=True)
class ArgumentPlan:
    """Import plan of one argument of a schema."""

    name: str
    convert: Convert
    default: Any
    is_tensor: bool


@dataclass(frozen=True)
class OverloadPlan:
    """Import plan of an overload."""

    overload: torch._ops.OpOverload
    name: str
    """``namespace.op`` or ``namespace.op.overload``, as in the torch dialect."""
    arguments: tuple[ArgumentPlan, ...]
    results: int
    tensors: tuple[int, ...]
    """Which arguments are tensors."""

    def bind(self, passed: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call in the schema's order, defaults filled in."""
        missing = self.arguments[len(passed) :]
        if not missing:
            return list(passed)
        return [*passed, *(kwargs.get(argument.name, argument.default) for argument in missing)]

    def misplaced_scalars(self, arguments: list[Any]) -> tuple[int, ...]:
        """Return the positions at which the schema has a tensor and the graph a number."""
        return tuple(i for i in self.tensors if is_scalar(arguments[i]))

    def complex_numbers(self, arguments: list[Any]) -> tuple[int, ...]:
        """Return the positions of complex numbers, which the torch dialect supports in tensors only."""
        return tuple(i for i, argument in enumerate(arguments) if isinstance(argument, complex))


def is_scalar(value: Any) -> bool:
    """Return whether an argument is a number or a node of a number."""
    if isinstance(value, fx.Node):
        return isinstance(value.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))
    return isinstance(value, (bool, int, float, complex))


@cache
def plan_for(overload: torch._ops.OpOverload) -> OverloadPlan:
    """Return the plan of an overload."""
    schema = overload._schema
    arguments = tuple(
        ArgumentPlan(
            name=argument.name,
            convert=converter(argument.real_type),
            default=argument.default_value,
            is_tensor=argument.real_type.kind() == "TensorType",
        )
        for argument in schema.arguments
    )
    name = schema.name.replace("::", ".") + (f".{schema.overload_name}" if schema.overload_name else "")
    tensors = tuple(i for i, argument in enumerate(arguments) if argument.is_tensor)
    return OverloadPlan(overload, name, arguments, len(schema.returns), tensors)


@cache
def sibling(overload: torch._ops.OpOverload, positions: tuple[int, ...], kind: str) -> OverloadPlan | None:
    """Return the overload that differs only in taking arguments of another kind (``"NumberType"``) at ``positions``."""
    wanted = [argument.real_type.kind() for argument in overload._schema.arguments]
    for index in positions:
        wanted[index] = kind
    packet = overload.overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        if [argument.real_type.kind() for argument in other._schema.arguments] == wanted:
            return plan_for(other)
    return None


def converter(type_: Any) -> Convert:
    """Return the function that converts an argument of the schema type ``type_`` to a value."""
    kind = type_.kind()
    if kind == "OptionalType":
        inner = converter(type_.getElementType())
        return lambda build, value: build.constant(None) if value is None else inner(build, value)
    if kind == "ListType":
        return _list_converter(type_.getElementType())
    return _CONVERTERS.get(kind, NodeBuilder.value)


def _list_converter(element: Any) -> Convert:
    convert = converter(element)
    spelled = _LIST_ELEMENTS.get(element.kind())

    def to_list(build: NodeBuilder, value: Any) -> ir.Value:
        if isinstance(value, fx.Node):
            binding = build.environment.binding(value)
            return (
                build.list_of([item for item in binding if isinstance(item, ir.Value)])
                if isinstance(binding, tuple)
                else build.value(value)
            )
        if not isinstance(value, (list, tuple)):
            value = [value]  # a number for a list of one element
        elements = [convert(build, item) for item in value]
        if spelled:
            return build.list_of(elements, build.types.parse(f"!torch.list<{spelled}>"))
        return build.list_of(elements, None if elements else build.types.parse("!torch.list<vtensor>"))

    return to_list


_LIST_ELEMENTS = {
    "IntType": "int",
    "SymIntType": "int",
    "ScalarTypeType": "int",
    "FloatType": "float",
    "BoolType": "bool",
    "StringType": "str",
}


def _tensor(build: NodeBuilder, value: Any) -> ir.Value:
    if isinstance(value, ir.Value):  # a scalar that is already a tensor value
        return value
    if not isinstance(value, fx.Node):
        raise UnsupportedNodeError(f"an argument that must be a tensor is {value!r}")
    return build.environment.value(value)


def _int(build: NodeBuilder, value: Any) -> ir.Value:
    if isinstance(value, torch.SymInt):
        raise UnsupportedNodeError(f"an argument is the dynamic size {value} itself, and no node that computes it")
    if isinstance(value, bool) or not isinstance(value, (int, fx.Node)):
        value = value if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)) else operator.index(value)
    return build.value(value)


def _float(build: NodeBuilder, value: Any) -> ir.Value:
    if not isinstance(value, fx.Node):
        return build.constant(float(value))
    scalar = build.environment.value(value)
    if str(scalar.type) == "!torch.float":
        return scalar
    return build.op("torch.aten.Float.Scalar", [build.types.parse("!torch.float")], [scalar]).result


def _bool(build: NodeBuilder, value: Any) -> ir.Value:
    return build.value(value if isinstance(value, fx.Node) else bool(value))


def _number(build: NodeBuilder, value: Any) -> ir.Value:
    """Return the value of a Scalar. C++ lowerings support ints and floats, so a bool becomes an int."""
    if isinstance(value, complex):
        raise UnsupportedNodeError(
            f"the torch dialect has no complex scalar constant, and the operator no overload that takes {value} as a "
            f"tensor: write it as one, torch.tensor({value})"
        )
    if isinstance(value, bool):
        return build.constant(int(value))
    number = build.value(value)
    if str(number.type) == "!torch.bool":
        return build.op("torch.aten.Int.bool", [build.types.parse("!torch.int")], [number]).result
    return number


def _generator(build: NodeBuilder, value: Any) -> ir.Value:
    if value is not None:
        raise UnsupportedNodeError("a torch.Generator cannot be imported: call the op without one")
    return build.constant(None)


_CONVERTERS: dict[str, Convert] = {
    "TensorType": _tensor,
    "IntType": _int,
    "SymIntType": _int,
    "FloatType": _float,
    "BoolType": _bool,
    "NumberType": _number,
    "GeneratorType": _generator,
}

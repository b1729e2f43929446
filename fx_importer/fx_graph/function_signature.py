"""The signature of a function of a lowered program: its arguments and results, as data and read from JSON."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.tree_json import Types, UnknownNamedTuple, tree_from_json
from fx_importer.symbolic.expressions import FUNCTIONS, SizeExpression

Fixed = bool | int | float | str | None
ArgumentKind = Literal["input", "state", "weight"]
ResultKind = Literal["output", "state", "input", "gradient", "size", "check"]

Scale = tuple[float, int]
"""Scale and zero point of a tensor of integers: an element stands for ``scale * (element - zero_point)``."""
Sharding = tuple[tuple[str, ...], ...]
"""For each dimension, the axes of a mesh that divide it, the one with the largest parts first."""


@dataclass(frozen=True)
class ValueType:
    """The type of a tensor or a number."""

    dtype: str
    """The torch name of the dtype, such as ``"float32"``; for a number, ``"int"``, ``"float"`` or ``"bool"``."""
    shape: tuple[int | str, ...] | None = None
    """None for a number. A string is a symbolic dimension: one of ``Function.symbols``, or an expression of them."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of a static tensor, such as a weight."""
        return tuple(map(int, self.shape or ()))


@dataclass(frozen=True)
class Leaf:
    """A leaf of the nested inputs or outputs of the model."""

    path: str
    """A Python expression: ``args[0]['mask']``, ``kwargs['scale']``, ``output.logits``."""
    type: ValueType | None = None
    """None for leaves without a run-time value: None and strings."""
    fixed: bool = False
    """Whether the program is specialized to one value of it."""
    value: Fixed = None
    """The value that the program is specialized to."""


@dataclass(frozen=True)
class Tree:
    """The nested inputs, ``(args, kwargs)``, or outputs of the model."""

    spec: pytree.TreeSpec | None
    """None if it was read from a file and has a named tuple that is not known here, or a type without a name."""
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True)
class Argument:
    """An argument of a function."""

    kind: ArgumentKind
    name: str
    """For an input, the placeholder's name or one of ``input_names``; for state and weights, that in the state dict."""
    type: ValueType
    leaf: int | None = None
    """For an input: its index among the leaves of the inputs."""
    overwritten: bool = False
    """Whether the function mutates it in place."""
    passed_as: str | None = None
    """The dtype that the function takes, if it differs from the model's. With narrow integers, ``"int32"``, and with
    narrow floats, ``"float32"``: values are converted, and have to fit. For complex numbers, the dtype of their real
    and imaginary parts, which form an additional last axis of size two, as in `torch.view_as_real`; ``type`` does not
    include this axis."""
    sharding: Sharding | None = None
    """In a program that a partitioner divides among the devices of a mesh: how this tensor is divided."""
    placeholder: str | None = None
    """For an input with a name of ``input_names``: the placeholder's name."""
    scale: Scale | None = None
    """For an input of integers that a quantized model dequantizes."""


@dataclass(frozen=True)
class Result:
    """A result of a function."""

    kind: ResultKind
    """``state`` and ``input``: the new value of a mutated tensor. ``gradient``: of a parameter or an input. ``size``:
    a size of outputs that depends on values. ``check``: whether one of `Function.assumptions` holds; the other results
    are valid only if it does."""
    name: str
    """For an output, its path; for a size, its name in the shapes of `Function.outputs`; for a check, the assumption;
    otherwise the name of the tensor whose new value or gradient it is."""
    type: ValueType
    """For an output whose leaf has sizes of the kind ``size``: the type of the padded tensor that the function returns.
    Elements from such a size on have any value."""
    leaf: int | None = None
    """For an output: its index among the leaves of the outputs. For an input: among the leaves of the inputs."""
    passed_as: str | None = None
    """The dtype that the function returns, if it differs from the model's; see `Argument`."""
    alias_of: str | None = None
    """For an output: the name of the written input or state that it is in eager, or is a view of. Here it has memory
    of its own, so that later writes to either do not change the other."""
    sharding: Sharding | None = None
    """As for an `Argument`. None if the partitioner chooses."""
    scale: Scale | None = None
    """For an output of integers that a quantized model quantizes to."""


@dataclass(frozen=True)
class Function:
    """A function of the module: an entry point of the program."""

    inputs: Tree
    outputs: Tree
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    symbols: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """Symbolic dimensions with their minimum and maximum sizes, inclusive; None means unbounded."""
    guards: tuple[str, ...] = ()
    """What torch.export assumed of ``symbols`` besides their ranges, such as ``s0 % s1 == 0``; see `SizeExpression`."""
    guard_lines: Mapping[str, str] = field(default_factory=dict)
    """The lines of the model, with file and number, that the guards of sizes below 2 are for, by guard."""
    assumptions: tuple[str, ...] = ()
    """What the capture assumed of the values of inputs and state, with file and line. Each is checked at every call: by
    an assertion in the function, or by a result of the kind ``check``."""
    frozen: tuple[str, ...] = ()
    """The names of the buffers whose values decided a branch, and which are constants of the module."""

    @property
    def padded_axes(self) -> Mapping[int, Mapping[int, int]]:
        """The position of the result that has the size, by leaf and axis of the outputs that are padded."""
        sizes = {result.name: position for position, result in enumerate(self.results) if result.kind == "size"}
        shapes = {at: leaf.type.shape or () for at, leaf in enumerate(self.outputs.leaves) if leaf.type and sizes}
        axes = {at: {axis: sizes[size] for axis, size in enumerate(s) if size in sizes} for at, s in shapes.items()}
        return {leaf: entry for leaf, entry in axes.items() if entry}

    def with_symbols(self, names: Mapping[str, str]) -> Function:
        """Return the function with symbols renamed to ``names``, but to none that means something else in a guard."""
        reserved = {*self.symbols, *FUNCTIONS, "math", *keyword.kwlist}
        names = {symbol: name for symbol, name in names.items() if name not in reserved}
        if not names:
            return self
        pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")

        def renamed(size: Any) -> Any:
            return pattern.sub(lambda match: names[match[1]], size) if isinstance(size, str) else size

        def typed(record: Any) -> Any:
            if record.type is None or record.type.shape is None:
                return record
            return replace(record, type=replace(record.type, shape=tuple(map(renamed, record.type.shape))))

        return replace(
            self,
            inputs=replace(self.inputs, leaves=tuple(map(typed, self.inputs.leaves))),
            outputs=replace(self.outputs, leaves=tuple(map(typed, self.outputs.leaves))),
            arguments=tuple(map(typed, self.arguments)),
            results=tuple(
                replace(result, name=renamed(result.name)) if result.kind == "size" else result
                for result in map(typed, self.results)
            ),
            symbols={renamed(symbol): range_ for symbol, range_ in self.symbols.items()},
            guards=tuple(map(renamed, self.guards)),
            guard_lines={renamed(guard): line for guard, line in self.guard_lines.items()},
        )


def function_from_json(record: Any, types: Types = ()) -> Function:
    """Return the function of a JSON object; ``types`` are the types of nested inputs and outputs, see `tree_from_json`.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: if it describes none.
        UnknownType: if a type of inputs or outputs is not known in this process.
    """
    inputs, outputs = _tree(record["inputs"], types), _tree(record["outputs"], types)
    arguments = tuple(_checked(Argument(**fields_from_json(fields))) for fields in record["arguments"])
    results = tuple(_checked(Result(**fields_from_json(fields))) for fields in record["results"])
    _check_inputs(inputs)
    for argument in arguments:
        _check_leaf(argument, inputs)
    for result in results:
        _check_leaf(result, outputs if result.kind == "output" else inputs)
        if result.alias_of is not None:
            name_from_json(result.alias_of)
    symbols, lines = _symbols(record.get("symbols", {})), record.get("guard_lines", {})
    names_from_json([*lines, *lines.values()])
    values = (names_from_json(record.get(name, ())) for name in ("assumptions", "frozen"))
    return Function(inputs, outputs, arguments, results, symbols, _guards(record), lines, *values)


def _tree(record: Any, types: Types) -> Tree:
    leaves = tuple(Leaf(**fields_from_json(fields)) for fields in record["leaves"])
    for leaf in leaves:
        if not isinstance(leaf.path, str) or not isinstance(leaf.value, Fixed) or type(leaf.fixed) is not bool:
            raise ValueError(f"{leaf} is not a leaf")
    try:
        spec = None if record["spec"] is None else tree_from_json(record["spec"], types)
    except UnknownNamedTuple:
        spec = None
    if spec is not None and spec.num_leaves != len(leaves):
        raise ValueError(f"a structure of {spec.num_leaves} leaves lists {len(leaves)}")
    return Tree(spec, leaves)


def _check_inputs(tree: Tree) -> None:
    """Raise ValueError unless ``tree`` has positional and keyword arguments."""
    spec = tree.spec
    if spec is None:
        return
    if spec.type is not tuple or [spec.child(index).type for index in range(spec.num_children)] != [tuple, dict]:
        raise ValueError("the inputs are no pair of positional and keyword arguments")
    if not all(isinstance(name, str) for name in spec.child(1).context):
        raise ValueError("a keyword argument has no name")


def _checked(value: Any) -> Any:
    """Return an `Argument` or a `Result` whose fields are of the declared types. Raises ValueError otherwise."""
    kinds = get_args(ArgumentKind if isinstance(value, Argument) else ResultKind)
    if value.kind not in kinds or not isinstance(value.name, str) or not isinstance(value.type, ValueType):
        raise ValueError(f"{value} is no {type(value).__name__.lower()}")
    if value.passed_as is not None:
        check_dtype(value.passed_as)
    if isinstance(value, Argument) and (
        type(value.overwritten) is not bool or not isinstance(value.placeholder, str | None)
    ):
        raise ValueError(f"{value} is not an argument")
    return value


def _check_leaf(value: Argument | Result, tree: Tree) -> None:
    """Raise ValueError if ``value`` names a leaf that ``tree`` does not have."""
    required = isinstance(value, Argument) and value.kind == "input"
    if value.leaf is None and not required:
        return
    if type(value.leaf) is not int or not 0 <= value.leaf < len(tree.leaves):
        raise ValueError(f"'{value.name}' is leaf {value.leaf!r} of {len(tree.leaves)}")


def _symbols(facts: Any) -> dict[str, tuple[int, int | None]]:
    symbols = {name: (least, greatest) for name, (least, greatest) in facts.items()}
    for name, (least, greatest) in symbols.items():
        if type(least) is not int or (greatest is not None and type(greatest) is not int):
            raise ValueError(f"'{name}' has no range")
    return symbols


def _guards(facts: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(SizeExpression(text).text for text in names_from_json(facts.get("guards", ())))


def fields_from_json(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON object, with its type parsed."""
    fields = dict(facts)
    if (type_ := fields.get("type")) is not None:
        fields["type"] = type_from_json(type_)
    if (sharding := fields.get("sharding")) is not None:
        fields["sharding"] = tuple(map(names_from_json, sharding))
    if (scale := fields.get("scale")) is not None:
        step, zero_point = scale
        if type(step) is not float or not 0 < step < math.inf or type(zero_point) is not int:
            raise ValueError(f"{scale!r} is not a scale with a zero point")
        fields["scale"] = (step, zero_point)
    return fields


def type_from_json(facts: Mapping[str, Any]) -> ValueType:
    """Return the type of a JSON object; raise ValueError if its dtype or shape is none."""
    dtype, shape = facts["dtype"], facts.get("shape")
    check_dtype(dtype)
    if shape is None:
        return ValueType(dtype)
    sizes: tuple[Any, ...] = tuple(shape) if isinstance(shape, list) else (None,)
    if not all(isinstance(size, str) or (type(size) is int and size >= 0) for size in sizes):
        raise ValueError(f"{shape!r} is not a shape")
    return ValueType(dtype, sizes)


def check_dtype(name: str) -> None:
    """Raise ValueError if torch has no dtype ``name``."""
    if not isinstance(name, str) or not isinstance(
        getattr(torch, name, None), torch.dtype
    ):  # also true for numbers, since torch.int is a dtype
        raise ValueError(f"{name!r} is not a dtype")


def name_from_json(text: Any) -> str:
    """Return ``text``; raise ValueError unless it is text."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a name")
    return text


def names_from_json(names: Any) -> tuple[str, ...]:
    """Return ``names``; raise ValueError unless it is a list of text."""
    if not isinstance(names, list | tuple):
        raise ValueError(f"{names!r} is not a list of names")
    return tuple(map(name_from_json, names))

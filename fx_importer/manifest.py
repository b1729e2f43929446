"""The manifest of a lowered program: the signatures of its functions, its state and its constants, as data and JSON."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError

FORMAT = 1
"""The version of the JSON format, which changes when readers of the previous version would break."""

NARROW = {"int64": "int32", "uint64": "int32"}
"""The dtypes that 64-bit integers are passed as, to functions without 64-bit integers."""

Fixed = bool | int | float | str | None
HeldKind = Literal["parameter", "buffer", "constant"]


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
    """None if it was read from a file and contains a type without a serialized name."""
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True)
class Argument:
    """An argument of a function."""

    kind: Literal["input", "state", "weight"]
    name: str
    """For an input, the placeholder's name; for state and weights, the name in the state dict."""
    type: ValueType
    leaf: int | None = None
    """For an input: its index among the leaves of the inputs."""
    overwritten: bool = False
    """Whether the function mutates it in place."""
    passed_as: str | None = None
    """The dtype that the function takes, if it differs from the model's. With narrow integers, ``"int32"``: values are
    converted, and have to fit. For complex numbers, the dtype of their real and imaginary parts, which form an
    additional last axis of size two, as in `torch.view_as_real`; ``type`` does not include this axis."""


@dataclass(frozen=True)
class Result:
    """A result of a function."""

    kind: Literal["output", "state", "input", "gradient"]
    """``state`` and ``input``: the new value of a mutated tensor. ``gradient``: of a parameter or an input."""
    name: str
    """For an output, its path; otherwise the name of the tensor whose new value or gradient it is."""
    type: ValueType
    leaf: int | None = None
    """For an output: its index among the leaves of the outputs. For an input: among the leaves of the inputs."""
    passed_as: str | None = None
    """The dtype that the function returns, if it differs from the model's; see `Argument`."""


@dataclass(frozen=True)
class Function:
    """A function of the module: an entry point of the program."""

    inputs: Tree
    outputs: Tree
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    symbols: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """Symbolic dimensions with their minimum and maximum sizes, inclusive; None means unbounded."""


@dataclass(frozen=True)
class Held:
    """A tensor of the program: mutable state or a constant of the module."""

    kind: HeldKind
    type: ValueType
    persistent: bool = True
    """Whether it is in the state dict."""


@dataclass(frozen=True)
class File:
    """The location of a tensor's data in a file, in row-major order without padding."""

    path: str
    """The path, relative to the manifest's directory or absolute."""
    name: str
    """The name of the tensor in the file."""
    offset: int
    nbytes: int
    sha256: str


@dataclass(frozen=True)
class Weight:
    """A parameter or a buffer that is not in the module: an external resource or an argument."""

    name: str
    """The name in the state dict."""
    type: ValueType
    passed_as: str | None = None
    """The dtype in the module, if it differs from the model's: one of the same bits, or that of the real and imaginary
    parts of complex numbers."""
    also: tuple[str, ...] = ()
    """Other names of the same tensor in the state dict."""
    file: File | None = None
    """The location of its data, if it was saved or found."""


@dataclass(frozen=True)
class Passed:
    """An operator argument that is an argument of its function."""

    argument: int
    """The index of the function's argument."""


OperatorArgument = Fixed | Passed | tuple["OperatorArgument", ...]


@dataclass(frozen=True)
class Returned:
    """A tensor result of an operator, returned by its function."""

    type: ValueType
    path: tuple[int, ...] = ()
    """The indices of the tensor in the nested result of the operator; empty if the tensor is the result itself."""


@dataclass(frozen=True)
class OperatorStub:
    """The stub of an unsupported operator: a function that the module declares and does not define."""

    operator: str
    """The overload, such as ``"aten.unfold.default"``."""
    arguments: tuple[OperatorArgument, ...]
    """The arguments in the order of the schema. Enumerations, such as dtypes, are encoded as torch's integers."""
    takes: tuple[ValueType, ...]
    """The argument types of the function. A size of ``"?"`` is dynamic; a number, which has no shape, is passed as a
    tensor of rank 0."""
    returns: tuple[Returned, ...]
    places: tuple[str, ...] = ()
    """The locations in the model that call it, one line per call."""

    def to_json(self) -> str:
        """Return the JSON needed to run the operator: the value of the declaration's attribute `STUB_ATTRIBUTE`."""
        return json.dumps(_plain(dataclasses.replace(self, places=())))

    @classmethod
    def from_json(cls, text: str) -> OperatorStub:
        """Return the stub that `to_json` wrote."""
        return _operator_stub(json.loads(text))


STUB_ATTRIBUTE = "fx_importer.stub"
"""The attribute of a stub's declaration whose value is `OperatorStub.to_json`."""


@dataclass(frozen=True)
class Manifest:
    """The contents of a module. Functions share state and constants by name."""

    output_type: str
    functions: Mapping[str, Function]
    state: Mapping[str, Held]
    constants: Mapping[str, Held]
    operator_stubs: Mapping[str, OperatorStub] = field(default_factory=dict)
    """Stubs of unsupported operators, by function name."""
    fallback: tuple[str, ...] = ()
    """Other output types that parts of the module are lowered to."""
    weights: Mapping[str, Weight] = field(default_factory=dict)
    """The weights that are not in the module, by the names of its resources or of the arguments of its functions."""

    @property
    def holes(self) -> Mapping[str, OperatorStub]:
        """Deprecated name of `operator_stubs`."""
        warnings.warn("Manifest.holes is called Manifest.operator_stubs now", DeprecationWarning, stacklevel=2)
        return self.operator_stubs

    @property
    def weights_by_name(self) -> dict[str, Weight]:
        """The weights that are not in the module, by name in the state dict."""
        return {each.name: each for each in self.weights.values()}

    def passing(self, dtypes: Mapping[str, str]) -> Manifest:
        """Return the manifest with tensors of the dtypes in ``dtypes`` (by name) passed as the given dtypes."""

        def passed(each: Any) -> Any:
            as_ = None if each.type.shape is None else dtypes.get(each.type.dtype)
            return dataclasses.replace(each, passed_as=as_ or each.passed_as)

        functions = {
            name: dataclasses.replace(
                function,
                arguments=tuple(map(passed, function.arguments)),
                results=tuple(map(passed, function.results)),
            )
            for name, function in self.functions.items()
        }
        return dataclasses.replace(self, functions=functions)

    def to_json(self) -> str:
        """Return the manifest as a JSON document, which `from_json` reads."""
        return json.dumps({"format": FORMAT, **_plain(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return the manifest that `to_json` wrote.

        Raises:
            UsageError: if ``text`` is not such a document, or contains a type of inputs or outputs that is not
                registered with torch.
        """
        try:
            return _manifest(json.loads(text))
        except NotImplementedError as error:
            raise UsageError(f"the manifest holds a type that is not registered here: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"not a manifest of format {FORMAT}: {type(error).__name__}: {error}") from error


def _plain(value: Any) -> Any:
    """Return ``value`` as lists, dictionaries and strings, without fields that have their default values."""
    if isinstance(value, pytree.TreeSpec):
        try:
            return json.loads(pytree.treespec_dumps(value))
        except NotImplementedError:  # a type registered without a serialized name
            return None
    if dataclasses.is_dataclass(value):
        pairs = [(each, getattr(value, each.name)) for each in dataclasses.fields(value)]
        return {each.name: _plain(found) for each, found in pairs if found != each.default}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _manifest(found: Any) -> Manifest:
    stubs = found.get("operator_stubs", found.get("holes", {}))  # "holes" in version 0.1
    if found["format"] != FORMAT:
        raise ValueError(f"this one is of format {found['format']}")
    return Manifest(
        found["output_type"],
        {name: _function(each) for name, each in found["functions"].items()},
        {name: Held(**_typed(each)) for name, each in found["state"].items()},
        {name: Held(**_typed(each)) for name, each in found["constants"].items()},
        {name: _operator_stub(each) for name, each in stubs.items()},
        tuple(found.get("fallback", ())),
        {name: _weight(each) for name, each in found.get("weights", {}).items()},
    )


def _function(found: Any) -> Function:
    return Function(
        _tree(found["inputs"]),
        _tree(found["outputs"]),
        tuple(Argument(**_typed(each)) for each in found["arguments"]),
        tuple(Result(**_typed(each)) for each in found["results"]),
        {name: (least, greatest) for name, (least, greatest) in found.get("symbols", {}).items()},
    )


def _operator_stub(found: Any) -> OperatorStub:
    return OperatorStub(
        found["operator"],
        tuple(map(_operator_argument, found["arguments"])),
        tuple(_type(each) for each in found["takes"]),
        tuple(Returned(_type(each["type"]), tuple(each.get("path", ()))) for each in found["returns"]),
        tuple(found.get("places", ())),
    )


def _weight(found: Any) -> Weight:
    fields = _typed(found)
    file = fields.get("file")
    weight = Weight(**fields | {"also": tuple(fields.get("also", ())), "file": None if file is None else _file(file)})
    if weight.type.shape is None or any(isinstance(size, str) for size in weight.type.shape):
        raise ValueError(f"the shape of '{weight.name}' is not known")
    if weight.passed_as is not None:
        _check_dtype(weight.passed_as)
    return weight


def _file(found: Any) -> File:
    file = File(**found)
    if not isinstance(file.path, str) or any(type(each) is not int or each < 0 for each in (file.offset, file.nbytes)):
        raise ValueError(f"{found} is no part of a file")
    return file


def _operator_argument(found: Any) -> OperatorArgument:
    if isinstance(found, list):
        return tuple(map(_operator_argument, found))
    return Passed(**found) if isinstance(found, dict) else found


def _tree(found: Any) -> Tree:
    spec = None if found["spec"] is None else pytree.treespec_loads(json.dumps(found["spec"]))
    return Tree(spec, tuple(Leaf(**_typed(each)) for each in found["leaves"]))


def _typed(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON object, with its type parsed."""
    fields = dict(found)
    if (type_ := fields.get("type")) is not None:
        fields["type"] = _type(type_)
    return fields


def _type(found: Mapping[str, Any]) -> ValueType:
    dtype, shape = found["dtype"], found.get("shape")
    _check_dtype(dtype)
    if shape is None:
        return ValueType(dtype)
    sizes: tuple[Any, ...] = tuple(shape) if isinstance(shape, list) else (None,)
    if not all(isinstance(size, str) or (type(size) is int and size >= 0) for size in sizes):
        raise ValueError(f"{shape!r} is no shape")
    return ValueType(dtype, sizes)


def _check_dtype(name: str) -> None:
    if not isinstance(getattr(torch, name, None), torch.dtype):  # also true for numbers, since torch.int is a dtype
        raise ValueError(f"{name!r} is no dtype")

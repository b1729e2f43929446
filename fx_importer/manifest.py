"""The manifest of a lowered program: the signatures of its functions, its state and its constants, as data and JSON."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError
from fx_importer.fx_graph.function_signature import (
    Argument,
    Fixed,
    Function,
    Leaf,
    Result,
    Tree,
    ValueType,
    check_dtype,
    fields_from_json,
    function_from_json,
    type_from_json,
)

__all__ = [
    "FORMAT",
    "NARROW",
    "STUB_ATTRIBUTE",
    "Argument",
    "File",
    "Fixed",
    "Function",
    "Held",
    "HeldKind",
    "Leaf",
    "Manifest",
    "OperatorArgument",
    "OperatorStub",
    "Passed",
    "Result",
    "Returned",
    "Tree",
    "ValueType",
    "Weight",
]

FORMAT = 1
"""The version of the JSON format, which changes when readers of the previous version would break."""

NARROW = {"int64": "int32", "uint64": "int32"}
"""The dtypes that 64-bit integers are passed as, to functions without 64-bit integers."""

HeldKind = Literal["parameter", "buffer", "constant"]


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
        {name: function_from_json(each) for name, each in found["functions"].items()},
        {name: Held(**fields_from_json(each)) for name, each in found["state"].items()},
        {name: Held(**fields_from_json(each)) for name, each in found["constants"].items()},
        {name: _operator_stub(each) for name, each in stubs.items()},
        tuple(found.get("fallback", ())),
        {name: _weight(each) for name, each in found.get("weights", {}).items()},
    )


def _operator_stub(found: Any) -> OperatorStub:
    return OperatorStub(
        found["operator"],
        tuple(map(_operator_argument, found["arguments"])),
        tuple(type_from_json(each) for each in found["takes"]),
        tuple(Returned(type_from_json(each["type"]), tuple(each.get("path", ()))) for each in found["returns"]),
        tuple(found.get("places", ())),
    )


def _weight(found: Any) -> Weight:
    fields = fields_from_json(found)
    file = fields.get("file")
    weight = Weight(**fields | {"also": tuple(fields.get("also", ())), "file": None if file is None else _file(file)})
    if weight.type.shape is None or any(isinstance(size, str) for size in weight.type.shape):
        raise ValueError(f"the shape of '{weight.name}' is not known")
    if weight.passed_as is not None:
        check_dtype(weight.passed_as)
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

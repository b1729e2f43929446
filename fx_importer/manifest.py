"""The manifest of a lowered program: the signatures of its functions, its state and its constants, as data and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fx_importer.diagnostics.html import folded
from fx_importer.errors import UsageError
from fx_importer.fx_graph.function_signature import (
    Argument,
    Fixed,
    Function,
    Leaf,
    Result,
    Scale,
    Tree,
    ValueType,
    check_dtype,
    fields_from_json,
    function_from_json,
    name_from_json,
    names_from_json,
)
from fx_importer.fx_graph.graph_break import GraphBreak, graph_break_from_json
from fx_importer.fx_graph.operator_stub import (
    STUB_ATTRIBUTE,
    TRITON_IR_ATTRIBUTE,
    OperatorArgument,
    OperatorStub,
    Passed,
    Returned,
    operator_stub_from_json,
)
from fx_importer.fx_graph.tree_json import Types, UnknownType, to_plain
from fx_importer.json_text import parse_json

__all__ = [
    "FORMAT",
    "NARROW",
    "STUB_ATTRIBUTE",
    "TRITON_IR_ATTRIBUTE",
    "Argument",
    "File",
    "Fixed",
    "Function",
    "GraphBreak",
    "Held",
    "HeldKind",
    "Leaf",
    "Manifest",
    "OperatorArgument",
    "OperatorStub",
    "Passed",
    "ProcessGroup",
    "Result",
    "Returned",
    "Scale",
    "Tree",
    "ValueType",
    "Weight",
]

FORMAT = 1
"""The version of the JSON format, which changes when readers of the previous version would break."""

NARROW = {"int64": "int32", "uint64": "int32"}
"""The dtypes that 64-bit integers are passed as, to functions without 64-bit integers."""

NARROW_FLOATS = {"float64": "float32", "complex128": "float32"}
"""The dtypes that float64, and the parts of complex128, are passed as, to functions without float64."""

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
class ProcessGroup:
    """A process group of torch.distributed, as the program's calls name it."""

    axes: tuple[str, ...]
    """The axes of the mesh along which its ranks differ; none if each device is alone."""
    replica_groups: tuple[tuple[int, ...], ...]
    """The groups of all devices."""


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
    mesh: Mapping[str, int] = field(default_factory=dict)
    """The axes of the mesh and their sizes, for a program of several devices, which are numbered in row-major order."""
    process_groups: Mapping[str, ProcessGroup] = field(default_factory=dict)
    """The process groups that collectives of the program use, by name."""
    graph_breaks: tuple[GraphBreak, ...] = ()
    """The places where Python runs between the functions, of a module that `import_function` made."""
    specialized: Mapping[str, Mapping[str, Fixed]] = field(default_factory=dict)
    """The numbers of Python for which functions were captured, by function and name: others need another import."""

    def __repr__(self) -> str:
        counts = (("functions", self.functions), ("state", self.state), ("weights outside", self.weights))
        parts = [f"{name} {len(records)}" for name, records in counts if records]
        return f"<Manifest {self.output_type}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return folded(repr(self), self.to_json())

    @property
    def weights_by_name(self) -> dict[str, Weight]:
        """The weights that are not in the module, by name in the state dict."""
        return {weight.name: weight for weight in self.weights.values()}

    def passing(self, dtypes: Mapping[str, str]) -> Manifest:
        """Return the manifest with tensors of the dtypes in ``dtypes`` (by name) passed as the given dtypes."""

        def passed(value: Any) -> Any:
            as_ = None if value.type.shape is None else dtypes.get(value.type.dtype)
            return dataclasses.replace(value, passed_as=as_ or value.passed_as)

        functions = {
            name: dataclasses.replace(
                function,
                arguments=tuple(map(passed, function.arguments)),
                results=tuple(map(passed, function.results)),
            )
            for name, function in self.functions.items()
        }
        return dataclasses.replace(self, functions=functions)

    def with_aliases(self, names: Mapping[str, Mapping[int, str]]) -> Manifest:
        """Return the manifest with `Result.alias_of` set to ``names``, by function and leaf of the output."""
        functions = dict(self.functions)
        for name, leaves in names.items():
            if leaves:
                results = functions[name].results
                functions[name] = dataclasses.replace(
                    functions[name],
                    results=tuple(
                        dataclasses.replace(result, alias_of=leaves.get(result.leaf))
                        if result.kind == "output" and result.leaf is not None
                        else result
                        for result in results
                    ),
                )
        return dataclasses.replace(self, functions=functions)

    def with_scales(self, scales: Mapping[str, tuple[Mapping[int, Scale], Mapping[int, Scale]]]) -> Manifest:
        """Return the manifest with the scales of inputs and of outputs, by function and leaf."""

        def scaled(value: Any, kind: str, by_leaf: Mapping[int, Scale]) -> Any:
            known = by_leaf.get(value.leaf) if value.kind == kind else None
            return dataclasses.replace(value, scale=known) if known is not None else value

        functions = dict(self.functions)
        for name, (inputs, outputs) in scales.items():
            if inputs or outputs:
                arguments = tuple(scaled(argument, "input", inputs) for argument in functions[name].arguments)
                results = tuple(scaled(result, "output", outputs) for result in functions[name].results)
                functions[name] = dataclasses.replace(functions[name], arguments=arguments, results=results)
        return dataclasses.replace(self, functions=functions)

    def with_dimension_names(self, names: Mapping[str, Mapping[str, str]]) -> Manifest:
        """Return the manifest with symbols renamed, by function and symbol; a name that is taken renames nothing."""
        functions = {name: function.with_symbols(names.get(name, {})) for name, function in self.functions.items()}
        return dataclasses.replace(self, functions=functions)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the manifest as a JSON document, which `from_json` reads; without ``indent``, in one line."""
        return json.dumps({"format": FORMAT, **to_plain(self)}, indent=indent) + ("" if indent is None else "\n")

    @classmethod
    def from_json(cls, text: str, types: Types = ()) -> Manifest:
        """Return the manifest that `to_json` wrote. Nothing that it names is imported or called.

        Args:
            text: the JSON.
            types: types of nested inputs and outputs besides those that are registered with torch under a name:
                named tuples, and enumerations in the context of registered types. A named tuple that is not known
                leaves the structure open (`Tree.spec` is None), and other functions of the manifest usable.

        Raises:
            UsageError: if ``text`` is not such a document, or contains another type that is not known.
        """
        try:
            return _manifest(parse_json(text), types)
        except UnknownType as error:
            raise UsageError(
                f"the manifest holds a type that is not registered here: {error}. Import what registers it with "
                "torch, or pass the type: Manifest.from_json(text, types=[...])"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"not a manifest of format {FORMAT}: {type(error).__name__}: {error}") from error


def _manifest(facts: Any, types: Types) -> Manifest:
    stubs = facts.get("operator_stubs", {})
    if facts["format"] != FORMAT:
        raise ValueError(f"this one is of format {facts['format']}")
    return Manifest(
        name_from_json(facts["output_type"]),
        {name: function_from_json(record, types) for name, record in facts["functions"].items()},
        {name: _held(record) for name, record in facts["state"].items()},
        {name: _held(record) for name, record in facts["constants"].items()},
        {name: operator_stub_from_json(record) for name, record in stubs.items()},
        names_from_json(facts.get("fallback", ())),
        {name: _weight(record) for name, record in facts.get("weights", {}).items()},
        {name_from_json(name): _positive(size) for name, size in facts.get("mesh", {}).items()},
        {name: _process_group(record) for name, record in facts.get("process_groups", {}).items()},
        tuple(map(graph_break_from_json, facts.get("graph_breaks", ()))),
        {name: _numbers(record) for name, record in facts.get("specialized", {}).items()},
    )


def _held(facts: Any) -> Held:
    value = Held(**fields_from_json(facts))
    if (
        value.kind not in get_args(HeldKind)
        or not isinstance(value.type, ValueType)
        or type(value.persistent) is not bool
    ):
        raise ValueError(f"{facts} is not a tensor of a program")
    return value


def _weight(facts: Any) -> Weight:
    fields = fields_from_json(facts)
    file = fields.get("file")
    weight = Weight(
        **fields | {"also": names_from_json(fields.get("also", ())), "file": None if file is None else _file(file)}
    )
    name_from_json(weight.name)
    if weight.type.shape is None or any(isinstance(size, str) for size in weight.type.shape):
        raise ValueError(f"the shape of '{weight.name}' is not known")
    if weight.passed_as is not None:
        check_dtype(weight.passed_as)
    return weight


def _process_group(facts: Any) -> ProcessGroup:
    group = ProcessGroup(names_from_json(facts["axes"]), tuple(map(tuple, facts["replica_groups"])))
    if any(type(device) is not int or device < 0 for devices in group.replica_groups for device in devices):
        raise ValueError(f"{facts} is not a process group")
    return group


def _numbers(facts: Any) -> dict[str, Fixed]:
    if not all(value is None or isinstance(value, bool | int | float | str) for value in facts.values()):
        raise ValueError(f"{facts} are not numbers")
    return dict(facts)


def _positive(size: Any) -> int:
    if type(size) is not int or size < 1:
        raise ValueError(f"{size!r} is not a size of an axis")
    return size


def _is_name(text: str) -> bool:
    """Whether ``text`` can name a file: without NUL and half surrogates, which have no bytes."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _file(facts: Any) -> File:
    file = File(**facts)
    named = all(isinstance(text, str) and _is_name(text) for text in (file.path, file.name, file.sha256))
    if not named or any(type(number) is not int or not 0 <= number < 2**63 for number in (file.offset, file.nbytes)):
        raise ValueError(f"{facts} is not a part of a file")
    return file

"""The stub of an unsupported operator, as data and JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from fx_importer.errors import UsageError
from fx_importer.fx_graph.function_signature import (
    Fixed,
    ValueType,
    name_from_json,
    names_from_json,
    type_from_json,
)
from fx_importer.fx_graph.tree_json import to_plain
from fx_importer.fx_graph.triton_kernel import TritonKernel, triton_kernel_from_json
from fx_importer.json_text import parse_json


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
    """The overload, such as ``"aten.unfold.default"``, or the Python name of a Triton kernel, ``"triton.<name>"``."""
    arguments: tuple[OperatorArgument, ...]
    """The arguments in the order of the schema. Enumerations, such as dtypes, are encoded as torch's integers. Those of
    a kernel are its grids of three sizes, one for each of its variants, and then its parameters."""
    takes: tuple[ValueType, ...]
    """The argument types of the function. A size of ``"?"`` is dynamic; a number, which has no shape, is passed as a
    tensor of rank 0."""
    returns: tuple[Returned, ...]
    places: tuple[str, ...] = ()
    """The locations in the model that call it, one line per call."""
    kernel: TritonKernel | None = None
    """How to launch it, if it is a Triton kernel."""

    def to_json(self) -> str:
        """Return the JSON needed to run the operator: the value of the declaration's attribute `STUB_ATTRIBUTE`."""
        return json.dumps(to_plain(dataclasses.replace(self, places=())))

    @classmethod
    def from_json(cls, text: str) -> OperatorStub:
        """Return the stub that `to_json` wrote. Raises `UsageError` if ``text`` is none."""
        try:
            return operator_stub_from_json(parse_json(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"the module declares no operator stub: {type(error).__name__}: {error}") from error


STUB_ATTRIBUTE = "fx_importer.stub"
"""The attribute of a stub's declaration whose value is `OperatorStub.to_json`."""

TRITON_IR_ATTRIBUTE = "fx_importer.triton_ir"
"""The attribute of a Triton kernel's declaration whose value is a list: the IR of each variant, in Triton's dialect."""


def operator_stub_from_json(record: Any) -> OperatorStub:
    """Return the stub of a JSON object; raise ValueError, KeyError, TypeError or AttributeError if it is none."""
    return OperatorStub(
        name_from_json(record["operator"]),
        tuple(map(_operator_argument, record["arguments"])),
        tuple(type_from_json(item) for item in record["takes"]),
        tuple(Returned(type_from_json(item["type"]), _path(item.get("path", ()))) for item in record["returns"]),
        names_from_json(record.get("places", ())),
        None if record.get("kernel") is None else triton_kernel_from_json(record["kernel"]),
    )


def _path(indices: Any) -> tuple[int, ...]:
    if not isinstance(indices, list | tuple) or any(type(index) is not int or index < 0 for index in indices):
        raise ValueError(f"{indices!r} are no indices")
    return tuple(indices)


def _operator_argument(record: Any) -> OperatorArgument:
    if isinstance(record, list):
        return tuple(map(_operator_argument, record))
    if isinstance(record, dict):
        passed = Passed(**record)
        if type(passed.argument) is not int or passed.argument < 0:
            raise ValueError(f"{record} is not an argument")
        return passed
    return record

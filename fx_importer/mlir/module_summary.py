"""Summary of a module: its functions, its operations by name, and its constants by size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fx_importer.manifest import Argument, Function, Manifest, Result, ValueType
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import byte_size, constants_in, is_resource, key_of
from fx_importer.mlir.walk import operations

_NOT_COUNTED = ("builtin.module", "func.func", "func.return")


@dataclass(frozen=True)
class ConstantSummary:
    """A tensor of a module that is not a splat."""

    name: str
    """The name of its weight or of the resource; empty for a literal."""
    type: str
    nbytes: int
    in_module: bool = True
    """Whether its bytes are in the module, and not a weight outside of it."""


@dataclass(frozen=True)
class ModuleSummary:
    """Contents of a module."""

    output_type: str
    """Empty without a manifest."""
    functions: Mapping[str, str]
    """Signatures by name: those of the manifest first, then types of other functions with a body."""
    operations: Mapping[str, int]
    """Counts by name, the most frequent first, without functions and returns."""
    constants: tuple[ConstantSummary, ...]
    """The largest first, each once, without shapes: tensors of ``index``."""

    @property
    def operation_count(self) -> int:
        return sum(self.operations.values())

    @property
    def nbytes(self) -> int:
        return sum(constant.nbytes for constant in self.constants)


def summary_of(module: ir.Operation, manifest: Manifest | None = None) -> ModuleSummary:
    """Return the summary of ``module``. Bytes of weights are not read."""
    described = {} if manifest is None else {name: signature(function) for name, function in manifest.functions.items()}
    typed = {
        ir.StringAttr(op.attributes["sym_name"]).value: str(op.attributes["function_type"])
        for op in operations(module, ("func.func",))
        if op.regions[0].blocks
    }
    return ModuleSummary(
        "" if manifest is None else manifest.output_type,
        {**described, **{name: type_ for name, type_ in typed.items() if name not in described}},
        operation_counts(module),
        _constants(module, manifest),
    )


def operation_counts(module: ir.Operation) -> dict[str, int]:
    """Return the counts of the operations of ``module`` by name, the most frequent first, without functions."""
    counts = Counter(op.name for op in operations(module))
    return {name: count for name, count in counts.most_common() if name not in _NOT_COUNTED}


def _constants(module: ir.Operation, manifest: Manifest | None) -> tuple[ConstantSummary, ...]:
    outside = {} if manifest is None else manifest.weights
    summaries: dict[ir.Attribute, ConstantSummary] = {}
    for _, _, value in constants_in(module):
        if value not in summaries and not isinstance(ir.ShapedType(value.type).element_type, ir.IndexType):
            key = key_of(value) if is_resource(value) else ""
            name = outside[key].name if key in outside else key
            summaries[value] = ConstantSummary(name, str(value.type), byte_size(value), key not in outside)
    return tuple(sorted(summaries.values(), key=lambda weight: -weight.nbytes))


def signature(function: Function) -> str:
    """Return the arguments and results of ``function``: ``(x: float32[3, 4]) -> (output: float32[3, 2])``."""
    arguments, results = (", ".join(map(_value, values)) for values in (function.arguments, function.results))
    return f"({arguments}) -> ({results})"


def _value(value: Argument | Result) -> str:
    kind = "" if value.kind in ("input", "output") else f"{value.kind} "
    passed = f" as {value.passed_as}" if value.passed_as else ""
    return f"{kind}{value.name}: {spelled_type(value.type)}{passed}"


def spelled_type(type_: ValueType) -> str:
    """Return a type as ``float32[2, n]``, or ``int`` for a number."""
    return type_.dtype if type_.shape is None else f"{type_.dtype}[{', '.join(map(str, type_.shape))}]"


def readable_bytes(count: int) -> str:
    """Return ``count`` bytes with a unit: ``1.5 MB``."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"

"""Check that a manifest describes the functions of a module."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.calls.call_signature import IN_STABLEHLO
from fx_importer.errors import UsageError
from fx_importer.fx_graph.function_signature import Argument, Result
from fx_importer.manifest import Manifest
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.dtypes import DTYPES
from fx_importer.mlir.functions import functions_of

_ELEMENTS = {**DTYPES, **IN_STABLEHLO}


def check_describes(manifest: Manifest, module: ir.Module, source: str) -> None:
    """Compare the function types in ``module`` with ``manifest``; for torch dialect types, compare only the count.

    Raises:
        UsageError: if functions, arguments or results differ. The message names ``source``.
    """
    functions = functions_of(module)
    problems: list[str] = [] if manifest.functions else ["it has no functions"]
    for name, function in manifest.functions.items():
        if name not in functions:
            problems.append(f"the module has no function '{name}'")
            continue
        type_ = functions[name].type
        for what, described, there in (
            ("arguments", function.arguments, type_.inputs),
            ("results", function.results, type_.results),
        ):
            if len(described) != len(there):
                problems.append(f"'{name}' has {len(there)} {what}, and the manifest {len(described)}")
                continue
            problems += [
                f"{value.name!r}, one of the {what} of '{name}', is {kind} in the module"
                for value, kind in zip(described, there, strict=True)
                if not _fits(value, kind)
            ]
    if problems:
        raise UsageError("\n  ".join([f"{source} describes another module:", *problems]))


def _fits(value: Argument | Result, type_: ir.Type) -> bool:
    shape, dtype = value.type.shape, value.passed_as or value.type.dtype
    if not isinstance(type_, ir.RankedTensorType):
        return shape is None or not isinstance(type_, ir.IntegerType | ir.FloatType)
    if shape is None:
        return type_.rank == 0
    if value.type.dtype.startswith("complex") and value.passed_as is not None:
        shape = (*shape, 2)
    dtypes = [str(dtype).removeprefix("torch.") for dtype in _ELEMENTS.get(str(type_.element_type), ())]
    return dtype in dtypes and _same_sizes(shape, type_)


def _same_sizes(shape: Sequence[int | str], type_: ir.RankedTensorType) -> bool:
    """Whether ranks, and sizes that are static on both sides, are equal."""
    return len(shape) == type_.rank and all(
        isinstance(size, str) or type_.is_dynamic_dim(axis) or size == type_.get_dim_size(axis)
        for axis, size in enumerate(shape)
    )

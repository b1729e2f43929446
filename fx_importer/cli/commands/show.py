"""``fx-importer show``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fx_importer.api.load import manifest_of_file
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.distributed import Mesh, Plan
from fx_importer.distributed.communication import of_function
from fx_importer.manifest import Manifest
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_summary import ConstantSummary, ModuleSummary, readable_bytes, summary_of
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.output_types import OutputType
from fx_importer.targets import Collectives, Target, target_for

LISTED = 20
"""Rows of operations and of weights; the rest is one row."""


def show_module(path: Path, json: Path | None = None) -> None:
    """Print the contents of the module in ``path``, and write them to ``json``.

    Raises:
        UsageError: if a file cannot be read or written.
    """
    with json_output(json) as write:
        module, manifest = read(path)
        summary = summary_of(module.operation, manifest)
        echo("\n".join(_lines(path, module, manifest, summary)))
        write(document(summary))


def read(path: Path) -> tuple[ir.Module, Manifest | None]:
    """Return the module in a file, and the manifest inside or next to it. Raises `UsageError` if it cannot be read."""
    module = read_untrusted_module(path, unregistered=True)
    return module, manifest_of_file(path, module)


def _lines(path: Path, module: ir.Module, manifest: Manifest | None, summary: ModuleSummary) -> Iterator[str]:
    yield f"{path}: {summary.output_type or 'no manifest'}, {path.stat().st_size:,} bytes"
    yield "functions"
    yield from (f"  {name}{signature}" for name, signature in summary.functions.items())
    if manifest is not None and manifest.state:
        yield f"state: {', '.join(manifest.state)}"
    yield f"operations: {summary.operation_count:,} of {len(summary.operations)} kinds"
    yield from _shortened([f"  {count:7,}  {name}" for name, count in summary.operations.items()], "kinds")
    if summary.constants:
        yield f"constants: {len(summary.constants)}, {readable_bytes(summary.nbytes)}"
        yield from _shortened([_constant_row(constant) for constant in summary.constants], "constants")
    if manifest is None:
        return
    target = target_for(OutputType.get(manifest.output_type))
    if manifest.mesh and target.collectives is Collectives.LOWERED:
        yield from _communication(module, manifest)
    if target.pipelines:
        yield from _contract(module, target)


def _communication(module: ir.Module, manifest: Manifest) -> Iterator[str]:
    """Yield the mesh, and tables of the bytes that each device sends; the partitioner decides if there is a plan."""
    mesh = Mesh(tuple(manifest.mesh.items()))
    if Plan.of(manifest.functions) is not None:
        yield f"mesh: {mesh}, divided by a partitioner"
        return
    for name in manifest.functions:
        yield f"mesh: {mesh}, communication of {name} in a call"
        yield from (f"  {line}" for line in str(of_function(module, name, mesh)).splitlines())


def _constant_row(constant: ConstantSummary) -> str:
    where = "" if constant.in_module else "  outside of the module"
    return f"  {readable_bytes(constant.nbytes):>9}  {constant.name or '(a literal)'}: {constant.type}{where}"


def _shortened(rows: Sequence[str], what: str) -> Iterable[str]:
    return rows if len(rows) <= LISTED + 1 else [*rows[:LISTED], f"  ... {len(rows) - LISTED} more {what}"]


def _contract(module: ir.Module, target: Target) -> Iterator[str]:
    rules = target.contract
    if rules is None:
        yield f"contract: not checked here for {target.output_type.value}"
        return
    problems = [message for _, message in rules.violations(module.operation)]
    yield f"contract: {'broken' if problems else 'held'}"
    yield from (f"  {problem}" for problem in problems)

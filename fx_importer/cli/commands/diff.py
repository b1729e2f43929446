"""``fx-importer diff``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from fx_importer.cli.commands.show import read
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.mlir.module_summary import ModuleSummary, readable_bytes, summary_of


def diff_modules(first: Path, second: Path, json: Path | None = None) -> bool:
    """Print how two saved modules differ, and write it to ``json``. Return whether they agree.

    Raises:
        UsageError: if a file cannot be read or written.
    """
    with json_output(json) as write:
        summaries: list[ModuleSummary] = []
        for path in (first, second):
            module, manifest = read(path)
            summaries.append(summary_of(module.operation, manifest))
        lines = list(differences(*summaries))
        echo("\n".join(lines) or "no difference in signatures, operations, and types of constants")
        write(document({"same": not lines, "differences": lines, "first": summaries[0], "second": summaries[1]}))
    return not lines


def differences(a: ModuleSummary, b: ModuleSummary) -> Iterator[str]:
    """Yield lines about what differs, but for values of weights: ``-`` is only in ``a``, ``+`` only in ``b``."""
    if a.output_type != b.output_type:
        yield f"output type: {a.output_type or 'no manifest'} -> {b.output_type or 'no manifest'}"
    for name in dict.fromkeys((*a.functions, *b.functions)):
        if a.functions.get(name) != b.functions.get(name):
            sides = (("-", a.functions), ("+", b.functions))
            yield from (f"{sign} {name}{functions[name]}" for sign, functions in sides if name in functions)
    yield from _counts(a.operations, b.operations)
    yield from _constants(a, b)


def _counts(a: Mapping[str, int], b: Mapping[str, int]) -> Iterator[str]:
    changed = [name for name in dict.fromkeys((*a, *b)) if a.get(name, 0) != b.get(name, 0)]
    if changed:
        yield f"operations: {sum(a.values()):,} -> {sum(b.values()):,}"
    for name in sorted(changed, key=lambda name: -abs(a.get(name, 0) - b.get(name, 0))):
        yield f"  {b.get(name, 0) - a.get(name, 0):+7,}  {name} ({a.get(name, 0):,} -> {b.get(name, 0):,})"


def _constants(a: ModuleSummary, b: ModuleSummary) -> Iterator[str]:
    before, after = (
        Counter((constant.name, constant.type, constant.nbytes) for constant in side.constants) for side in (a, b)
    )
    if before == after:
        return
    yield f"constants: {readable_bytes(a.nbytes)} -> {readable_bytes(b.nbytes)}"
    for sign, only in (("-", before - after), ("+", after - before)):
        for (name, type_, nbytes), count in only.items():
            times = f", {count} times" if count > 1 else ""
            yield f"  {sign} {name or '(a literal)'}: {type_}, {readable_bytes(nbytes)}{times}"

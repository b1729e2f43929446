"""Imports point down only: the source of every module is checked against the table of docs/architecture.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fx_importer"

BASE = {"errors", "json_text", "output_types", "option_fields", "options", "policies"}
VALUES = {"caching", "manifest", "diagnostics", "distributed", "frontend", "fx_graph", "mlir", "process", "symbolic"}
STAGES = {"decompositions", "fx_passes", "importing", "rewrites"}
AFTER = {"calls", "engines", "probing", "reduction", "verification", "weights"}
COMPILER = {"api", "compiler", "native", "results", "targets"}
ENTRY_POINTS = {
    "__init__",
    "__main__",
    "extras",
    "fx",
    "compiler_utils",
    "cli",
    "installation",
    "dynamo",
    "benchmarking",
    "llm",
}

BELOW_STAGES = BASE | VALUES
BELOW_TARGETS = BELOW_STAGES | STAGES | {"lowerings", "pipelines", "quantization"} | AFTER

MAY_IMPORT = {
    **dict.fromkeys(BASE, BASE),
    **dict.fromkeys(VALUES, BELOW_STAGES),
    **dict.fromkeys(STAGES, BELOW_STAGES),  # never each other
    "pipelines": BELOW_STAGES | {"rewrites"},
    "lowerings": BELOW_STAGES | {"decompositions", "importing", "rewrites"},
    "quantization": BELOW_STAGES | {"decompositions", "lowerings"},
    "calls": BELOW_STAGES | {"pipelines"},
    "engines": BELOW_STAGES | {"calls", "pipelines", "rewrites"},
    "probing": BELOW_STAGES | {"pipelines"},
    "verification": BELOW_STAGES | {"calls", "engines", "pipelines"},
    "reduction": BELOW_STAGES | {"pipelines", "verification"},
    "weights": BELOW_STAGES | {"engines"},
    "targets": BELOW_TARGETS,
    "native": BELOW_TARGETS | {"targets"},
    "results": BELOW_TARGETS | {"targets", "native"},
    "compiler": BELOW_TARGETS | {"targets", "native", "results"},
    "api": BELOW_TARGETS | COMPILER,
    **dict.fromkeys(ENTRY_POINTS, BELOW_TARGETS | COMPILER | ENTRY_POINTS),
}
"""A package here is a module or a folder directly in ``fx_importer``. Every package may import itself."""


def package_of(path: Path) -> str:
    """``fx_importer/importing/weights.py`` → ``importing``."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def violations(source: str, path: Path) -> list[str]:
    """Return a sentence for each import in ``source``, the text of the module ``path``, that does not point down."""
    package = package_of(path)
    where = path.relative_to(PACKAGE.parent)
    if package not in MAY_IMPORT:
        return [f"{where} has no layer: give '{package}' one in {Path(__file__).name} and in docs/architecture.md"]
    allowed = MAY_IMPORT[package] | {package}
    return [
        f"{where}:{line}: '{package}' imports '{imported}', but may import only {', '.join(sorted(allowed))}"
        for imported, line in imported_packages(ast.parse(source), path)
        if imported not in allowed
    ]


def imported_packages(tree: ast.AST, path: Path) -> Iterator[tuple[str, int]]:
    """Yield the packages that a module imports when it runs, wherever the statement stands, with its line."""
    for node in _running(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _package(alias.name.split("."), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            folder = list(path.relative_to(PACKAGE.parent).parts[: -node.level]) if node.level else []
            module = folder + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield from _package([*module, alias.name], node.lineno)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk ``tree`` without what stands under ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from _running(node)


def _package(name: list[str], line: int) -> Iterator[tuple[str, int]]:
    if name[0] == PACKAGE.name:
        # A name that is not a package, as in `from fx_importer import lower`, comes from the package itself.
        yield (name[1] if len(name) > 1 and name[1] in MAY_IMPORT else "__init__"), line


def module_paths() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_imports_point_down():
    assert [line for path in module_paths() for line in violations(path.read_text(), path)] == []


@pytest.mark.parametrize(
    "module, source, expected",
    [
        ("importing/weights.py", "from fx_importer.diagnostics.trace import Trace", None),
        ("importing/weights.py", "from fx_importer.importing.types import dtype", None),
        ("importing/weights.py", "from .types import dtype", None),
        ("importing/weights.py", "import fx_importerish.cli, torch", None),
        ("cli/app.py", "from fx_importer import lower", None),
        ("errors.py", "if TYPE_CHECKING:\n    from fx_importer.diagnostics.trace import Trace", None),
        ("errors.py", "from fx_importer.diagnostics.trace import Trace", "errors.py:1: 'errors' imports 'diagnostics'"),
        ("importing/weights.py", "from fx_importer.pipelines import Pass", "'importing' imports 'pipelines'"),
        (
            "importing/weights.py",
            "\nimport fx_importer.fx_passes.identities",
            "weights.py:2: 'importing' imports 'fx_passes'",
        ),
        ("importing/weights.py", "from fx_importer import decompositions", "'importing' imports 'decompositions'"),
        ("importing/weights.py", "from .. import rewrites", "'importing' imports 'rewrites'"),
        ("importing/weights.py", "from fx_importer import lower", "'importing' imports '__init__'"),
        (
            "pipelines/runner.py",
            "def run():\n    from fx_importer import compiler",
            "runner.py:2: 'pipelines' imports",
        ),
        ("compiler/driver.py", "from fx_importer.cli import main", "'compiler' imports 'cli'"),
        ("attic.py", "import torch", "fx_importer/attic.py has no layer"),
    ],
)
def test_the_check_itself(module: str, source: str, expected: str | None):
    found = violations(source, PACKAGE / module)
    if expected is None:
        assert found == []
    else:
        assert len(found) == 1
        assert expected in found[0]

"""The rules of docs/architecture.md on the source of the package, other than those on imports."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.house import cycles, folder_sizes, imports, longest_function, sources
from fx_importer import decompositions
from fx_importer.decompositions.engine.table import LayeredRule
from fx_importer.engines.engine_table import BUILT_IN
from fx_importer.output_types import OutputType

EMULATION = "fx_importer.decompositions.emulation"
PACKAGE = Path(__file__).parents[1] / "fx_importer"


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each file of the package, by its path relative to it."""
    return {path: ast.parse(text) for path, text in sources(PACKAGE.parent).items() if path.suffix == ".py"}


@functools.cache
def nodes() -> dict[Path, list[ast.AST]]:
    """Return the nodes of each tree, parents first."""
    return {path: [*ast.walk(tree)] for path, tree in trees().items()}


@pytest.fixture(scope="module", autouse=True)
def forget_trees() -> Iterator[None]:
    yield
    trees.cache_clear()
    nodes.cache_clear()


def test_class_names_are_unique():
    """Public classes have one name in the package; private ones may repeat in other folders."""
    places: dict[str, list[Path]] = defaultdict(list)
    for path, found in nodes().items():
        for name in {node.name for node in found if isinstance(node, ast.ClassDef)}:
            places[name].append(path)
    public = {name: paths for name, paths in places.items() if len(paths) > 1 and not name.startswith("_")}
    assert public.keys() == {"FxImporter"}, public  # ours, and the one that stands in for torch-mlir's
    private = {name: [path.parent for path in paths] for name, paths in places.items() if name.startswith("_")}
    assert {name for name, folders in private.items() if len(set(folders)) < len(folders)} == set()


def test_torch_types_are_parsed_in_one_file():
    """A regular expression on the text of torch types is in ``mlir/types.py``, and nowhere else."""
    parsing = {
        str(path)
        for path, found in nodes().items()
        for node in found
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and r"!torch\." in node.value
    }
    assert parsing == {"mlir/types.py"}


def functions_of(rule: Any) -> Iterator[Any]:
    """Yield the functions of a rule: of a layered one, those of its layers."""
    if isinstance(rule, LayeredRule):
        yield from functions_of(rule.first)
        yield from functions_of(rule.otherwise)
    else:
        yield rule.func if isinstance(rule, functools.partial) else rule


def rules_by_operator() -> dict[Any, dict[str, set[str]]]:
    """Return the names of our rules in all tables, by operator and module."""
    tables = (table for table in vars(decompositions).values() if isinstance(table, decompositions.DecompositionTable))
    rules: dict[Any, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for operator, rule in (line for table in tables for line in table.items()):
        for function in functions_of(rule):
            if function.__module__.startswith(decompositions.__name__):
                rules[operator][function.__module__].add(function.__qualname__)
    return rules


def test_rules_of_an_operator_are_in_one_file():
    """Emulation apart, and within one concern of emulation too."""
    several = {}
    for operator, modules in rules_by_operator().items():
        concerns = defaultdict(set)
        for module in modules:
            concerns[module.split(".")[3] if module.startswith(EMULATION) else ""].add(module)
        several |= {str(operator): files for files in concerns.values() if len(files) > 1}
    assert several == {}


def test_emulation_has_one_file_or_folder_per_concern():
    concerns = {path.stem for path in (PACKAGE / "decompositions" / "emulation").iterdir() if path.stem[0] != "_"}
    assert concerns == {
        *("bools", "broadcasting", "complex", "integers", "low_precision", "promotion", "rank_zero", "unsigned"),
    }


def test_emitters_are_one_hierarchy():
    """Every emitter extends one other, at most four deep; emitters of other dialects are members."""
    bases = {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for found in nodes().values()
        for node in found
        if isinstance(node, ast.ClassDef)
    }

    def chains(name: str) -> list[list[str]]:
        """Return the chains of classes from ``name`` to ``Emitter``."""
        if name == "Emitter":
            return [[name]]
        return [[name, *chain] for base in bases.get(name, ()) for chain in chains(base)]

    emitters = {name: found for name in bases if (found := chains(name))}
    assert {"TosaEmitter", "TensorEmitter", "LoopEmitter"} <= emitters.keys()
    assert {name: found for name, found in emitters.items() if len(found) > 1} == {}
    assert {name: found for name, found in emitters.items() if len(found[0]) > 4} == {}


def test_files_and_functions_are_short():
    longest = max(text.count("\n") for text in sources(PACKAGE.parent).values())
    assert longest <= 450
    assert longest_function(trees())[0] <= 110


def test_folders_are_small():
    """A folder has at most 25 files."""
    assert folder_sizes(trees()) == {}


def test_files_do_not_import_each_other_in_circles():
    assert cycles(imports(trees(), at_load=True)) == []


def test_circles_of_imports_in_functions_are_those_that_load_later():
    """A record of an engine loads the engine when it runs, and a result of the cache the compiler when it is asked."""
    circles = cycles(imports(trees(), at_load=False))
    records = [circle for circle in circles if any(path.name == "engine.py" for path in circle)]
    (others,) = [circle for circle in circles if circle not in records]
    assert all(len({path.parent for path in circle}) == 1 for circle in records)
    assert Path("compiler/restored.py") in others
    assert {path.parent for path in others} == {Path("compiler")}


def strings(path: Path) -> Iterator[str]:
    """Yield the string constants in a module, without docstrings."""
    found = nodes()[path]
    bodies = (getattr(node, "body", None) for node in found)
    statements = (statement for body in bodies if isinstance(body, list) for statement in body)
    docstrings = {id(statement.value) for statement in statements if isinstance(statement, ast.Expr)}
    for node in found:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_engine_is_named_in_its_folder_only():
    """Others ask its record. ``stablehlo`` is also the name of a dialect and an output type."""
    folders = {engine.name: Path(*engine.create.__module__.split(".")[1:-1]) for engine in BUILT_IN}
    named = {
        f"{path}: {name}"
        for path in trees()
        for text in strings(path)
        for name, folder in folders.items()
        if name not in {output_type.value for output_type in OutputType} and folder not in path.parents
        if name in text and (text == name or re.search(rf"['\"]{name}['\"]|\b{name}\|", text))
    }
    assert not named


def is_output_type(node: ast.expr) -> bool:
    """Whether an expression is a built-in output type: ``OutputType.TOSA``, ``OutputType.TOSA.value``, or several."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(is_output_type, node.elts))
    named = isinstance(node, ast.Attribute) and re.fullmatch(r"OutputType\.[A-Z_]+(\.value)?", ast.unparse(node))
    return bool(named)


def test_output_types_are_compared_in_targets_only():
    """Elsewhere, fields of `Target` say what differs."""
    names = {output_type.value for output_type in OutputType}
    comparisons = [
        f"{path}: {ast.unparse(node)}"
        for path, found in nodes().items()
        if path.parts[0] != "targets"
        for node in found
        if isinstance(node, ast.Compare)
        for side in [node.left, *node.comparators]
        if is_output_type(side)
        or (isinstance(side, ast.Constant) and side.value in names and "output_type" in ast.unparse(node))
    ]
    assert not comparisons


def test_commands_print_through_one_function():
    """Names of files have their control characters escaped there."""
    own = {PACKAGE / "cli" / name for name in ("terminal.py", "escaped_console.py", "json_output.py")}
    printing = re.compile(r"(?<![\w.])(print|Console)\(")
    found = [
        str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "cli").rglob("*.py")
        if path not in own and "playground" not in path.parts and printing.search(path.read_text())
    ]
    assert found == []

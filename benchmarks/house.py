"""Measure the code base itself: sizes, import cycles, repeated names, calls of a small lowering, prose.

python -m benchmarks.house                         # this tree
python -m benchmarks.house --before 59ef23cf       # compared with a commit
python -m benchmarks.house --before 59ef23cf --write docs/measurements/house.md
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "fx_importer"
ENGINES = ("iree", "jit", "stablehlo-interp", "tosa-reference", "vela", "xla", "eager")
"""Names of engines, as `Lowered.caller` takes them."""
ENGINE_FOLDERS = ("engines", "execution")
EMULATION = re.compile(r"emulation|unsigned|promot|float64|half|low_precision|rank_zero|complex|wide_integer|bool")
"""Files whose rules emulate dtypes or ranks: they may have a second rule for an operator."""

CALLS_OF_SMALL_LOWERING = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from fx_importer import lower
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU6()).eval()
program = torch.export.export(model, (torch.randn(2, 4),))
lower(program, output_type="tosa")
calls, files, depth, deepest = 0, set(), 0, 0
def profile(frame, event, arg):
    global calls, depth, deepest
    if "/fx_importer/" not in frame.f_code.co_filename:
        return
    if event == "call":
        calls, depth = calls + 1, depth + 1
        files.add(frame.f_code.co_filename)
        deepest = max(deepest, depth)
    elif event == "return":
        depth -= 1
sys.setprofile(profile)
lower(program, output_type="tosa")
sys.setprofile(None)
print(calls, len(files), deepest)
"""

RULES_BY_OPERATOR = """
import gc, importlib, pkgutil, warnings
warnings.simplefilter("ignore")
import fx_importer.decompositions as package
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
for rule in gc.get_objects():
    if type(rule).__name__ == "Decomposition":
        file = getattr(rule.rule, "__module__", "?")
        for operator in rule.operators:
            print(operator, file)
"""


def sources(root: Path) -> dict[Path, str]:
    """Return the text of each Python file of the package, by its path relative to it."""
    package = root / PACKAGE
    return {
        path.relative_to(package): path.read_text()
        for pattern in ("*.py", "*.pyi")
        for path in sorted(package.rglob(pattern))
    }


def longest_function(trees: Mapping[Path, ast.Module]) -> tuple[int, str]:
    """Return the lines of the longest function, and its file and name."""
    return max(
        (
            (node.end_lineno or 0) - node.lineno + 1,
            f"{path}: {node.name}",
        )
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def imports(trees: Mapping[Path, ast.Module], at_load: bool) -> dict[Path, set[Path]]:
    """Return the files that each file imports; ``at_load`` leaves out imports in functions."""
    modules = {module_name(path): path for path in trees}
    return {
        path: {
            modules[name] for name in imported_names(tree, path, at_load, modules) if modules.get(name, path) != path
        }
        for path, tree in trees.items()
    }


def module_name(path: Path) -> str:
    parts = [PACKAGE, *path.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.AST, path: Path, at_load: bool, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports; ``from package import module`` is only an import of the module."""
    for node in running(tree, at_load):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = [PACKAGE, *path.parts[: len(path.parts) - node.level]] if node.level else []
            module = ".".join([*folder, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else module for name in names)


def running(tree: ast.AST, at_load: bool) -> Iterator[ast.AST]:
    """Walk ``tree`` without code under ``if TYPE_CHECKING``, and without functions if ``at_load``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        if at_load and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield node
        yield from running(node, at_load)


def cycles(graph: Mapping[Path, set[Path]]) -> list[set[Path]]:
    """Return the strongly connected components of more than one file, by Tarjan's algorithm."""
    index: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    components: list[set[Path]] = []

    def visit(path: Path) -> None:
        index[path] = low[path] = len(index)
        stack.append(path)
        for other in graph[path]:
            if other not in index:
                visit(other)
                low[path] = min(low[path], low[other])
            elif other in stack:
                low[path] = min(low[path], index[other])
        if low[path] == index[path]:
            at = stack.index(path)
            components.append(set(stack[at:]))
            del stack[at:]

    for path in graph:
        if path not in index:
            visit(path)
    return [component for component in components if len(component) > 1]


def uses_private_torch(tree: ast.Module) -> bool:
    """Return whether a file imports from, or reads an attribute of, a private module or name of torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            if any(name.startswith("_") and name != "__future__" for name in names):
                return True
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("torch.") and "._" in alias.name:
                    return True
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            name = ast.unparse(node.value)
            if name == "torch" or (re.fullmatch(r"torch(\.\w+)+", name) and not name.startswith("torch.ops")):
                return True
    return False


def places_of_engines(trees: Mapping[Path, ast.Module]) -> Counter[Path]:
    """Return how many string literals outside the engines' folders are the name of an engine, by file."""
    return Counter(
        path
        for path, tree in trees.items()
        if path.parts[0] not in ENGINE_FOLDERS
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in ENGINES
    )


def repeated_classes(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Return the names of classes that several files define."""
    files: dict[str, set[Path]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(path)
    return sorted(name for name, paths in files.items() if len(paths) > 1)


def python(root: Path, code: str) -> str:
    """Run ``code`` with the package of ``root``, and return its output."""
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"a measurement failed:\n{done.stderr}")
    return done.stdout


def operators_in_several_files(root: Path) -> tuple[int, int, int]:
    """Return the number of operators with rules, those in several files, and those so without emulation."""
    files: dict[str, set[str]] = defaultdict(set)
    for line in python(root, RULES_BY_OPERATOR).splitlines():
        operator, file = line.rsplit(" ", 1)
        files[operator].add(file)
    without = {op: [file for file in names if not EMULATION.search(file)] for op, names in files.items()}
    return (
        len(files),
        sum(len(names) > 1 for names in files.values()),
        sum(len(names) > 1 for names in without.values()),
    )


def folder_sizes(paths: Iterable[Path]) -> dict[str, int]:
    """Return the folders with more than 25 Python files, with the number."""
    counts = Counter(str(path.parent) for path in paths)
    return {folder: count for folder, count in sorted(counts.items()) if count > 25}


def kinds_of_lines(texts: Mapping[Path, str], trees: Mapping[Path, ast.Module]) -> Counter[str]:
    """Return the number of lines of code, signatures, docstrings, imports, comments, and blank ones."""
    counts = Counter[str]()
    for path, tree in trees.items():
        lines = [line.strip() for line in texts[path].splitlines()]
        kinds = ["blank" if not line else "comments" if line.startswith("#") else "code" for line in lines]
        for node in ast.walk(tree):
            first, last = getattr(node, "lineno", 1) - 1, getattr(node, "end_lineno", 0)
            if isinstance(node, ast.Import | ast.ImportFrom):
                kinds[first:last] = ["imports"] * (last - first)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                last = max(node.body[0].lineno - 1, first)
                kinds[first:last] = ["signatures" if kind == "code" else kind for kind in kinds[first:last]]
            elif isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
                kinds[first:last] = ["docstrings"] * (last - first)
        counts.update(kinds)
    return counts


def phrases(root: Path) -> dict[str, str]:
    """Return phrases that are hard to read in docstrings, per 10,000 words, with the most that other projects have.

    They are counted by a tool next to the repository; none without it.
    """
    tool = next((path for folder in ROOT.parents if (path := folder / "shared/tools/prose.py").exists()), None)
    if tool is None:
        return {}
    command = [sys.executable, str(tool), str(root / PACKAGE)]
    rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    columns = [row.rsplit(maxsplit=2) for row in rows]
    return {f"docstrings: {name.strip()} (at most {2 * float(most):.1f})": count for name, count, most in columns}


def measures(root: Path) -> dict[str, str]:
    """Return the measures of the checkout ``root``, by name."""
    texts = sources(root)
    trees = {path: ast.parse(text) for path, text in texts.items()}
    code = {path: tree for path, tree in trees.items() if path.suffix == ".py"}
    lines = {path: text.count("\n") for path, text in texts.items()}
    at_load, anywhere = (cycles(imports(code, at_load)) for at_load in (True, False))
    engines = places_of_engines(code)
    longest = max(lines, key=lambda path: lines[path])
    function_lines, function = longest_function(code)
    classes = repeated_classes(code)
    operators, several, without_emulation = operators_in_several_files(root)
    calls, files, frames = python(root, CALLS_OF_SMALL_LOWERING).split()
    folders = folder_sizes(code)
    return {
        "lines": f"{sum(lines.values()):,}",
        **{f"lines: {kind}": f"{count:,}" for kind, count in kinds_of_lines(texts, code).most_common()},
        "files": f"{len(code):,}",
        "longest file": f"{lines[longest]} ({longest})",
        "longest function": f"{function_lines} ({function})",
        "folders with more than 25 files": ", ".join(f"{k} {v}" for k, v in folders.items()) or "none",
        "import cycles at load": f"{len(at_load)} of {sum(map(len, at_load))} files",
        "import cycles with imports in functions": f"{len(anywhere)} of {sum(map(len, anywhere))} files",
        "operators with rules in several files": f"{several} of {operators}; without emulation {without_emulation}",
        "places that name an engine, outside engines/": f"{sum(engines.values())} in {len(engines)} files",
        "files that use private torch": f"{sum(map(uses_private_torch, code.values()))}",
        "class names that repeat": f"{len(classes)}",
        "calls of lowering Linear + ReLU6 to TOSA": f"{int(calls):,} in {files} files, {frames} frames deep",
        **phrases(root),
    }


def lines_by_package(root: Path) -> dict[str, str]:
    """Return the lines of each package of the checkout ``root``."""
    counts = Counter[str]()
    for path, text in sources(root).items():
        counts[path.parts[0] if len(path.parts) > 1 else "(root)"] += text.count("\n")
    return {name: f"{count:,}" for name, count in sorted(counts.items())}


def table(title: str, columns: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the lines of a table with a row for each name in ``columns``."""
    yield f"| {title} | {' | '.join(columns)} |"
    yield "|---|" + "---:|" * len(columns)
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        yield f"| {name} | {' | '.join(column.get(name, '') for column in columns.values())} |"


def report(roots: Mapping[str, Path]) -> Iterator[str]:
    """Yield the lines of the report on checkouts, by the titles of their columns."""
    yield from table("measure", {title: measures(root) for title, root in roots.items()})
    yield ""
    yield from table("package", {title: lines_by_package(root) for title, root in roots.items()})


def commit(revision: str) -> str:
    """Return the short name of a commit."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", revision]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def extract(revision: str, directory: Path) -> None:
    """Write the files of a commit to ``directory``."""
    command = ["git", "-C", str(ROOT), "archive", revision, PACKAGE, "pyproject.toml"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, filter="data")


PAGE = """# The code base, before and after

Written by `python -m benchmarks.house --before {before} --write docs/measurements/house.md`: the package at the commit
{before} and now. [Architecture](../architecture.md) describes the code; `tests/test_architecture.py` keeps most rows.

"""

GUESSES = """
## Where is it?

Files guessed for thirteen tasks on November 28 by two readers who had not seen the package. The first had the names of
files alone: 20 guesses in all. Some files were renamed for it. The second had the names and
[Architecture](../architecture.md): 15 guesses, in the table; 13 would be the least.

| task | guesses | number |
|---|---|---:|
| a decomposition for TOSA only | `decompositions/indexing/index_put.py`, as an example | 1 |
| an option of a command | `cli/model_arguments.py` | 1 |
| an option of a lowering | `options.py` | 1 |
| an output type | `output_types.py` | 1 |
| the text of an error of export | `frontend/export_errors.py` | 1 |
| a library call of the JIT | `rewrites/llvm/library_calls.py`, then `engines/jit/library_kernels.py` | 2 |
| a higher-order operator | `importing/handlers/higher_order/__init__.py` | 1 |
| a rule of quantization | `quantization/families/softmax.py`, as an example | 1 |
| an architecture of language models | `llm/architectures/model_types.py` | 1 |
| an engine | `engines/engine_table.py` | 1 |
| symbolic sizes as MLIR | `importing/symbolic_shapes.py`, then `symbolic/conversions.py` | 2 |
| vectorization of the JIT | `rewrites/llvm/vectorization.py` | 1 |
| the key of the cache | `compiler/caching/cache_key.py` | 1 |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="COMMIT", help="a commit to compare with")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to write the comparison to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        roots = {"now": ROOT}
        if arguments.before:
            extract(arguments.before, Path(directory))
            roots = {commit(arguments.before): Path(directory), **roots}
        text = "\n".join(report(roots)) + "\n"
    if arguments.write:
        arguments.write.write_text(PAGE.format(before=arguments.before) + text + GUESSES)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()

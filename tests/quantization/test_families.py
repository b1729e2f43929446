"""Every integer operator has its folding rule, eager form and lowerings in one file of ``quantization/families``."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import torch

import fx_importer
from fx_importer.lowerings import EMITTERS
from fx_importer.output_types import OutputType
from fx_importer.quantization import integer_lowerings
from fx_importer.quantization.families import FAMILIES
from fx_importer.quantization.integer_operators import integer

PACKAGE = Path(fx_importer.__file__).parent
FOLDER = PACKAGE / "quantization" / "families"
NAMESPACE = "fx_importer_integer"
OPERATORS = {form.__name__: form for family in FAMILIES for form in family.operators}


def file_of(function: object) -> str:
    return inspect.getsourcefile(function) or ""  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_operator_has_rule_eager_form_and_lowerings_in_one_file(name: str):
    (family,) = (family for family in FAMILIES if OPERATORS[name] in family.operators)
    file = file_of(OPERATORS[name])
    assert Path(file).parent == FOLDER
    operator = getattr(integer, name).default
    lowerings = [rule for rule in family.lowerings if operator in rule.operators]
    into = {output_type for rule in lowerings for output_type in rule.into}
    assert into in ({OutputType.TOSA}, {OutputType.LINALG_ON_TENSORS, OutputType.STABLEHLO})
    assert {file_of(rule.rule) for rule in lowerings} == {file}
    # A rule calls the overload; eager forms call sums of products without naming one.
    calls = f"integer.{name}." if into == {OutputType.TOSA} else f"integer.{name}("
    assert any(calls in ast.unparse(node) for node in functions(Path(file)) if not is_lowering(node))


@pytest.mark.parametrize("root", EMITTERS, ids=lambda root: root.value)
def test_output_types_lower_or_decompose_all_operators(root: OutputType):
    rules = [operator for rule in integer_lowerings(root) for operator in rule.operators]
    assert sorted(map(str, rules)) == sorted(f"{NAMESPACE}.{name}.default" for name in OPERATORS)


def test_files_and_families_agree():
    files = {str(path) for path in FOLDER.glob("*.py") if path.name != "__init__.py"}
    listed = {
        file_of(function)
        for family in FAMILIES
        for function in (*family.operators, *(rule.fold for rule in family.rules.values()), *family.moves.values())
    }
    assert listed == files


def test_no_operator_is_defined_elsewhere():
    names = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())
    assert {name for namespace, _, name in names if namespace == NAMESPACE} == OPERATORS.keys()


def test_no_other_package_names_an_integer_operator():
    others = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "quantization" not in path.parents]
    assert not [path for path in others if "integer_operators" in path.read_text()]


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


def is_lowering(node: ast.FunctionDef) -> bool:
    return any("lowers(" in ast.unparse(decorator) for decorator in node.decorator_list)

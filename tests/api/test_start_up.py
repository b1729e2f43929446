"""Modules that are loaded by the first call and not by an import."""

import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "numpy",
    "sympy",
    "torch_mlir",
    "transformers",
    "asyncio",
    "fx_importer.compiler",
    "fx_importer.importing",
)


@pytest.mark.new_interpreter
@pytest.mark.parametrize(
    "statement",
    [
        "import fx_importer",
        "from fx_importer import lower, export_and_import, OutputType",
        "from fx_importer.options import Options, LoweringOptions",
        "import fx_importer.cli",
    ],
)
def test_imports_load_nothing_heavy(statement: str):
    code = f"import sys\n{statement}\nprint([name for name in {HEAVY} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"

"""Configuration of lit: ``lit lit_tests`` runs all tests below, with lit's own Python interpreter."""

# pyright: reportUndefinedVariable=false

import os
import shlex
import sys
from pathlib import Path

import lit.formats

HERE = Path(__file__).parent
PYTHON = shlex.quote(lit_config.params.get("python", sys.executable))

config.name = "fx_importer"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".py", ".mlir", ".test"]
config.excludes = ["lit.cfg.py", "Inputs"]
config.test_source_root = str(HERE)
# Parallel runs need separate folders: lit stores test times there.
config.test_exec_root = lit_config.params.get("exec_root", str(HERE / "Output"))

# Both are found beside the interpreter, so that the environment need not be activated.
config.substitutions += [
    ("%PYTHON", PYTHON),
    ("%fx-importer", f"{PYTHON} -m fx_importer"),
    ("%torch-mlir-opt", shlex.quote(str(Path(sys.executable).with_name("torch-mlir-opt")))),
    (r"\bFileCheck\b", f"{PYTHON} {shlex.quote(str(Path(sys.executable).with_name('filecheck')))}"),
]

# Tests import this tree, in a fixed environment.
config.environment["PYTHONPATH"] = str(HERE.parent)
config.environment["PYTHONWARNINGS"] = os.environ.get("PYTHONWARNINGS", "")
config.environment["OMP_NUM_THREADS"] = "1"
config.environment["HF_HUB_OFFLINE"] = "1"

# pyright: reportUndefinedVariable=false
import os
import sys
from pathlib import Path

import lit.formats

config.name = "npu_plugin"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = lit_config.params.get("exec_root", config.test_source_root)
config.substitutions += [
    ("%fx-importer", f"{sys.executable} -m fx_importer"),
    (r"\bFileCheck\b", str(Path(sys.executable).with_name("filecheck"))),
]
config.environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")

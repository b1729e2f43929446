"""List the passes of the installed torch-mlir wheel: ``python -m testing.wheel_passes``.

MLIR's Python bindings cannot list passes. Their names are texts in the wheel's library; those that MLIR's parser of
pipelines accepts are written to the file that ``fx-importer opt --list`` reads.
"""

from __future__ import annotations

import re
from pathlib import Path

from torch_mlir import _mlir_libs

from fx_importer.pipelines.wheel_passes import NAMES, is_pass, opt_passes

LIBRARY = "libTorchMLIRAggregateCAPI.so"
_NAME = re.compile(rb"(?<=\0)[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?=\0)")


def names_in_wheel() -> list[str]:
    """Return the names of all passes and pipelines of the wheel. It takes ten seconds."""
    texts = {text.decode() for text in _NAME.findall((Path(_mlir_libs.__path__[0]) / LIBRARY).read_bytes())}
    return sorted(name for name in {*texts, *opt_passes()} if is_pass(name))


if __name__ == "__main__":
    NAMES.write_text("\n".join(names_in_wheel()) + "\n")
    print(NAMES)

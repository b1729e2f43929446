"""Zig, a compiler of C and LLVM IR: from the extra ``native``, or the PATH."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from fx_importer.errors import NotInstalledError

EXTRA = "native"


def find_zig() -> Path:
    """Return Zig's program. Raises `NotInstalledError` if it is neither a package here nor in the PATH."""
    spec = importlib.util.find_spec("ziglang")
    if spec is not None and spec.submodule_search_locations:
        program = Path(next(iter(spec.submodule_search_locations))) / "zig"
        if program.exists():
            return program
    if found := shutil.which("zig"):
        return Path(found)
    raise NotInstalledError("native code", "ziglang", EXTRA)

"""Compilers of C and LLVM IR: Zig from the extra ``native`` or the PATH, or else a clang in the PATH."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fx_importer.errors import NotInstalledError, UsageError

if TYPE_CHECKING:
    from fx_importer.native.targets import NativeTarget

EXTRA = "native"
_LEAST_CLANG = 19
"""The oldest release that reads the LLVM IR of the wheel's MLIR."""


@dataclass(frozen=True)
class Compiler:
    """Zig, which compiles for all targets, or clang, which compiles for Linux on the processor of this machine."""

    program: Path
    is_zig: bool

    @property
    def version_command(self) -> list[str]:
        """The command that prints the version."""
        return [str(self.program), "version" if self.is_zig else "--version"]

    def check(self, target: NativeTarget) -> None:
        """Raise `UsageError` for a target that it does not compile for."""
        if self.is_zig:
            return
        if not target.is_linux_here:
            raise UsageError(
                f"{self.program} has no libraries for '{target.name}': install the extra {EXTRA}, whose compiler has "
                "libraries for all targets"
            )
        if "+" in target.cpu:
            raise UsageError(f"'{target.cpu}' has features in Zig's words: install the extra {EXTRA}")

    def select(self, target: NativeTarget) -> list[str]:
        """Return the options of C that select ``target``."""
        if self.is_zig:
            return ["-target", target.triple, f"-mcpu={target.cpu}"]
        if target.cpu in ("generic", "baseline_rv64"):
            return []
        option = "march" if target.architecture == "x86_64" else "mcpu"
        return [f"-{option}={target.cpu.replace('_', '-')}"]

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command of Zig's ``arguments``, which begin with cc, ar or a linker.

        Raises:
            UsageError: if clang comes without that tool.
        """
        tool, *rest = arguments
        if self.is_zig:
            return [str(self.program), tool, *rest]
        if tool == "cc":
            return [str(self.program), *rest]
        suffix = self.program.name.removeprefix("clang")
        names = (f"{tool}{suffix}", f"llvm-{tool}{suffix}", tool)
        if (path := next(filter(None, map(shutil.which, names)), None)) is None:
            raise UsageError(f"{self.program} comes without {names[0]}: install that, or the extra {EXTRA}")
        return [path, *rest]


def find_compiler() -> Compiler:
    """Return Zig, or the newest clang in the PATH. Raises `NotInstalledError` if there is neither."""
    spec = importlib.util.find_spec("ziglang")
    if spec is not None and spec.submodule_search_locations:
        program = Path(next(iter(spec.submodule_search_locations))) / "zig"
        if program.exists():
            return Compiler(program, True)
    if program := shutil.which("zig"):
        return Compiler(Path(program), True)
    folders = [Path(folder) for folder in os.get_exec_path()]
    versions = {path: _clang_version(path) for folder in folders for path in _clangs(folder)}
    newest = max(versions, key=versions.__getitem__, default=None)
    if newest is not None and versions[newest] >= _LEAST_CLANG:
        return Compiler(newest, False)
    raise NotInstalledError("native code", "ziglang", EXTRA)


def _clangs(folder: Path) -> list[Path]:
    """Return the programs in ``folder`` that are named clang, with or without a release."""
    try:
        paths = sorted(folder.glob("clang*"))
    except OSError:  # a folder that the user may not read
        return []
    return [path for path in paths if re.fullmatch(r"clang(-\d+)?", path.name) and shutil.which(path)]


@functools.cache
def _clang_version(program: Path) -> int:
    """Return the major version of clang; 0 if it does not run."""
    if number := program.name.removeprefix("clang-").removeprefix("clang"):
        return int(number)
    try:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return int(match_[1]) if (match_ := re.search(r"clang version (\d+)", version)) else 0

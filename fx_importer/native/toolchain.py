"""Compilations for a target."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fx_importer.errors import UsageError
from fx_importer.native.compilers import find_compiler
from fx_importer.native.targets import NativeTarget


def compile_file(target: NativeTarget, source: Path, output: Path, *options: str) -> None:
    """Compile ``source``, of C, assembler or LLVM IR, to an object for ``target``."""
    run_tool(target, ["cc", *flags(target), "-c", str(source), "-o", str(output), *options], source.parent)


def flags(target: NativeTarget) -> list[str]:
    """Return the options that select ``target``, and optimize."""
    common = [
        *find_compiler().select(target),
        "-O3",
        "-g0",
        "-fno-sanitize=all",
        "-fno-stack-protector",
    ]
    return [*common, "-ffunction-sections", "-fdata-sections", *([] if target.is_bare else ["-fPIC"])]


def run_tool(target: NativeTarget, arguments: Sequence[str], folder: Path) -> str:
    """Run ``arguments``, Zig's, in ``folder``, and return what the compiler prints.

    Raises:
        UsageError: if it does not know the target or a feature of it, or has no C library for it.
        RuntimeError: if it fails otherwise.
    """
    compiler = find_compiler()
    done = subprocess.run(compiler.command(arguments), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        message = done.stderr.strip() or done.stdout.strip()
        if (first := next((line for line in message.splitlines() if _UNKNOWN.search(line)), None)) is not None:
            name, reason = "Zig" if compiler.is_zig else "clang", first.removeprefix("error: ")
            verb = "has no C library in" if "provide libc" in first else "is unknown to"
            raise UsageError(f"the target '{target.name}' {verb} {name}: {reason}")
        raise RuntimeError(f"{compiler.program.name} {arguments[0]} failed for {target.name}: {message[-2000:]}")
    return done.stdout


_UNKNOWN = re.compile(
    r"unknown (CPU|target|feature|operating system|architecture|ABI)|unable to (parse target query|provide libc)"
)

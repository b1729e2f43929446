"""Compilations by Zig for a target."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from fx_importer.errors import UsageError
from fx_importer.native.targets import NativeTarget
from fx_importer.native.zig import find_zig


def compile_file(target: NativeTarget, source: Path, output: Path, *options: str) -> None:
    """Compile ``source``, of C, assembler or LLVM IR, to an object for ``target``."""
    run_zig(target, ["cc", *flags(target), "-c", str(source), "-o", str(output), *options], source.parent)


def flags(target: NativeTarget) -> list[str]:
    """Return the options that select ``target``, and optimize."""
    common = [
        "-target",
        target.triple,
        f"-mcpu={target.cpu}",
        "-O3",
        "-g0",
        "-fno-sanitize=all",
        "-fno-stack-protector",
    ]
    return [*common, "-ffunction-sections", "-fdata-sections", *([] if target.is_bare else ["-fPIC"])]


def run_zig(target: NativeTarget, arguments: Sequence[str], folder: Path) -> str:
    """Run Zig in ``folder``, and return what it prints.

    Raises:
        UsageError: if it does not know the target, or a feature of it.
        StageFailed: if it fails otherwise.
    """
    program = find_zig()
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        message = done.stderr.strip() or done.stdout.strip()
        if any(text in message for text in _UNKNOWN):
            first = next(line for line in message.splitlines() if any(text in line for text in _UNKNOWN))
            raise UsageError(f"the target '{target.name}' is unknown to Zig: {first.removeprefix('error: ')}")
        raise RuntimeError(f"zig {arguments[0]} failed for {target.name}: {message[-2000:]}")
    return done.stdout


_UNKNOWN = tuple(f"unknown {what}" for what in ("CPU", "target", "feature", "operating system", "architecture", "ABI"))

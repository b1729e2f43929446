"""The passes and pass pipelines that the torch-mlir wheel registers."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fx_importer.mlir.bindings import ir, load_dialects, new_context, passmanager, torch_mlir_opt

NAMES = Path(__file__).with_suffix(".txt")
"""Names of the passes of a wheel, which ``python -m testing.wheel_passes`` writes."""

_LISTED = re.compile(r"^  --([\w-]+)\s+-\s+(.*)$", re.MULTILINE)


def wheel_passes() -> Mapping[str, str]:
    """Return the descriptions of the passes that this wheel registers, by name; empty where it has none."""
    described = opt_passes()
    names = {*NAMES.read_text().split(), *described}
    return {name: described.get(name, "") for name in sorted(names) if is_pass(name)}


def opt_passes() -> Mapping[str, str]:
    """Return the descriptions of the passes of the wheel's ``torch-mlir-opt``, which has some of all, by name."""
    listed = subprocess.run([torch_mlir_opt(), "--list-passes"], capture_output=True, text=True, check=False).stdout
    return dict(_LISTED.findall(listed))


def is_pass(name: str) -> bool:
    """Whether MLIR has a pass or a pass pipeline of this name."""
    try:
        passmanager.PassManager.parse(f"builtin.module({name})", _context())
    except ValueError as error:
        return "does not refer to a registered" not in str(error)
    return True


@functools.cache
def _context() -> ir.Context:
    context = new_context()
    load_dialects(context)
    return context

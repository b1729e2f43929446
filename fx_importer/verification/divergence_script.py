"""Reproducer script of a single wrong operation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError
from fx_importer.mlir.output_files import file_for_torch
from fx_importer.options import Options
from fx_importer.process.one_shot import output_of
from fx_importer.verification.comparison import Tolerance
from fx_importer.verification.definitions import Definitions
from fx_importer.verification.function_source import NotPythonError
from fx_importer.verification.python_source import Raw, call_source, lower_arguments
from fx_importer.verification.single_op_program import NodeCall, Slot

_TEXT = '''\
"""{title}

Exits with 0 if it agrees with eager PyTorch on {backend}, else with 1.
"""

from pathlib import Path
{definitions}

inputs = torch.load(Path(__file__).with_name("inputs.pt"), weights_only=True)


class Node(torch.nn.Module):
    def forward(self{parameters}):
        return {call}


lowered = fx_importer.lower(Node(), *inputs, {arguments})
verdict = lowered.verify(*inputs, backends=[{backend!r}], isolate=False{tolerance})
print(verdict)
sys.exit(not verdict)
'''
SECONDS = 300
"""Time limit of the script's first run."""


def write_script(name: str, call: NodeCall, options: Options, backend: str, tolerance: Tolerance) -> Path:
    """Write the script and its inputs to a new directory, and run it.

    The script includes the rules and passes in ``options``. The directory is created in ``FX_IMPORTER_DUMP_DIR``, or
    among temporary files.

    Raises:
        UsageError: if the call, a rule or a pass cannot be written as Python, or the script does not mismatch when it
            is run.
    """
    definitions = Definitions()
    try:
        module = call.module
        if not isinstance(module.target, OpOverload):
            raise NotPythonError(f"'{module.target}' is a function of Python, and not an operator")
        definitions.operator(module.target)
        copy = ".clone()" if module.writes else ""
        leaves = [Raw(f"x{leaf.position}{copy}") if isinstance(leaf, Slot) else leaf for leaf in module.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, module.spec)
        spelled = call_source(f"torch.ops.{module.target}", args, kwargs)
        arguments = lower_arguments(options, definitions)
    except NotPythonError as error:
        raise UsageError(f"no script reproduces it: {error}") from None
    tolerances = {"rtol": tolerance.rtol, "atol": tolerance.atol}
    text = _TEXT.format(
        title=f"Lowers {call.module.target} alone.",
        backend=backend,
        definitions=definitions.text,
        parameters="".join(f", x{position}" for position in range(len(call.inputs))),
        call=spelled,
        arguments=", ".join(arguments),
        tolerance="".join(f", {key}={value!r}" for key, value in tolerances.items() if value is not None),
    )
    safe = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    script = _written(f"fx-importer-{safe}-differs-", text, call.inputs)
    if reason := _failure(script):
        shutil.rmtree(script.parent, ignore_errors=True)
        raise UsageError(f"no script reproduces it: alone in another process, {reason}")
    return script


def _failure(script: Path) -> str:
    """Run ``script``; return how its end differs from a mismatch, or ``""``."""
    try:
        ran = output_of([sys.executable, script], SECONDS)
    except subprocess.TimeoutExpired:
        return f"it had not ended after {SECONDS} seconds"
    if ran.returncode == 0:
        return "it agrees with eager PyTorch"
    lines = (ran.stderr if "Traceback" in ran.stderr else ran.stdout + ran.stderr).strip().splitlines()
    return "" if ran.returncode == 1 and "mismatch" in ran.stdout else f"it fails: {(lines or ['no output'])[-1]}"


def _written(prefix: str, text: str, inputs: Sequence[torch.Tensor]) -> Path:
    """Write the script ``text`` and its inputs to a new directory. Raises `UsageError` if the disk is full."""
    parent = os.environ.get("FX_IMPORTER_DUMP_DIR") or tempfile.gettempdir()
    directory = None
    try:
        Path(parent).mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).absolute()
        script = directory / "script.py"
        script.write_text(text, encoding="utf-8")
        with file_for_torch(directory / "inputs.pt") as file:
            torch.save([argument.clone() for argument in inputs], file)
    except OSError as error:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        raise UsageError(f"cannot write the reproducer to '{parent}': {error.strerror or error}") from None
    return script

"""Reproducer script of a single wrong operation."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError
from fx_importer.mlir.output_files import file_for_torch
from fx_importer.options import Options
from fx_importer.verification.comparison import Tolerance
from fx_importer.verification.python_source import (
    NotPythonError,
    Raw,
    call_source,
    definer_remark,
    lowering_arguments,
    python_arguments,
)
from fx_importer.verification.single_op_program import NodeCall, Slot

_TEXT = '''\
"""{title}

Exits with 0 if it agrees with eager PyTorch on {backend}, else with 1.
"""

import sys
{imports}
import torch

from fx_importer import lower
{remarks}
inputs = torch.load({inputs}, weights_only=True)


class Node(torch.nn.Module):
    def forward(self{parameters}):
        return {call}


lowered = lower(Node(), *inputs{options})
verdict = lowered.verify(*inputs, backends=[{backend!r}], isolate=False{tolerance})
print(verdict)
sys.exit(not verdict)
'''


def write_script(name: str, call: NodeCall, options: Options, backend: str, tolerance: Tolerance) -> Path | None:
    """Write the script and its inputs to a new directory; return None if the call cannot be written as Python.

    The script includes the decompositions in ``options``. The directory is created in ``FX_IMPORTER_DUMP_DIR``, or
    among temporary files.
    """
    try:
        spelled = _call(call)
    except NotPythonError:
        return None
    imports, table, remarks = python_arguments(options)
    remarks += definer_remark(call.module.target)
    settings = [f"output_type={options.output_type.value!r}", *lowering_arguments(options.lowering), *table]
    tolerances = {"rtol": tolerance.rtol, "atol": tolerance.atol}
    text = _TEXT.format(
        title=f"Lowers {call.module.target} alone.",
        backend=backend,
        imports="".join(f"{line}\n" for line in ["from pathlib import Path", *imports]),
        remarks="".join(f"\n{line}" for line in remarks) + ("\n" if remarks else ""),
        inputs='Path(__file__).with_name("inputs.pt")',
        parameters="".join(f", x{position}" for position in range(len(call.inputs))),
        call=spelled,
        options="".join(f", {setting}" for setting in settings),
        tolerance="".join(f", {key}={value!r}" for key, value in tolerances.items() if value is not None),
    )
    safe = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    return _written(f"fx-importer-{safe}-differs-", text, call.inputs)


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


def _call(call: NodeCall) -> str:
    module = call.module
    if not isinstance(module.target, OpOverload):
        raise NotPythonError(module.target)
    copy = ".clone()" if module.writes else ""
    leaves = [Raw(f"x{leaf.position}{copy}") if isinstance(leaf, Slot) else leaf for leaf in module.leaves]
    args, kwargs = pytree.tree_unflatten(leaves, module.spec)
    return call_source(f"torch.ops.{module.target}", args, kwargs)

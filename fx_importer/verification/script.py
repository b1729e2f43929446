"""A Python file that shows a wrong operation without the model it was found in."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from fx_importer.options import DecompositionOptions, LoweringOptions, Options
from fx_importer.verification.alone import NodeCall, Slot
from fx_importer.verification.comparing import Tolerance

_BUILT_IN = ("aten", "prims")

_TEXT = '''\
"""{title}

Exits with 0 if that agrees with eager PyTorch on {backend}, and with 1 while it does not.
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
    """Write the file and its inputs to a fresh directory; return None for what cannot be spelled in Python.

    All rules among ``options`` are written down. The directory is made under ``FX_IMPORTER_DUMP_DIR``, or where
    temporary files go.
    """
    try:
        spelled = _call(call)
    except _Unspeakable:
        return None
    imports, table, remarks = _decompositions(options.decompositions)
    namespace = str(call.module.target).partition(".")[0]
    if namespace not in _BUILT_IN:
        remarks.append(f"# Import here what defines torch.ops.{namespace}.")
    settings = [f"output_type={options.output_type.value!r}", *_lowering(options.lowering), *table]
    tolerances = {"rtol": tolerance.rtol, "atol": tolerance.atol}
    parent = os.environ.get("FX_IMPORTER_DUMP_DIR")
    if parent:
        Path(parent).mkdir(parents=True, exist_ok=True)
    safe = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    directory = Path(tempfile.mkdtemp(prefix=f"fx-importer-{safe}-differs-", dir=parent or None)).absolute()
    torch.save([each.clone() for each in call.inputs], directory / "inputs.pt")
    script = directory / "script.py"
    script.write_text(
        _TEXT.format(
            title=f"Lowers {call.module.target} alone.",
            backend=backend,
            imports="".join(f"{line}\n" for line in ["from pathlib import Path", *imports]),
            remarks="".join(f"\n{line}" for line in remarks) + ("\n" if remarks else ""),
            inputs='Path(__file__).with_name("inputs.pt")',
            parameters="".join(f", x{position}" for position in range(len(call.inputs))),
            call=spelled,
            options="".join(f", {each}" for each in settings),
            tolerance="".join(f", {key}={value!r}" for key, value in tolerances.items() if value is not None),
        ),
        encoding="utf-8",
    )
    return script


class _Unspeakable(Exception):
    """A value that Python has no spelling for."""


def _call(call: NodeCall) -> str:
    module = call.module
    if not isinstance(module.target, OpOverload):
        raise _Unspeakable
    copy = ".clone()" if module.writes else ""
    leaves = [_Raw(f"x{each.position}{copy}") if isinstance(each, Slot) else each for each in module.leaves]
    args, kwargs = pytree.tree_unflatten(leaves, module.spec)
    spelled = [_spelled(each) for each in args] + [f"{key}={_spelled(each)}" for key, each in kwargs.items()]
    return f"torch.ops.{module.target}({', '.join(spelled)})"


class _Raw(str):
    """Text that is Python already."""


def _spelled(value: Any) -> str:
    match value:
        case _Raw():
            return value
        case float() if value != value or value in (float("inf"), float("-inf")):
            return f"float('{value}')"
        case bool() | int() | float() | complex() | str() | None:
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_spelled, value))}]"
        case torch.dtype() | torch.memory_format() | torch.layout():
            return str(value)
        case torch.device():
            return f"torch.{value!r}"
    raise _Unspeakable


def _lowering(options: LoweringOptions) -> list[str]:
    found: list[str] = []
    for name, default in vars(LoweringOptions()).items():
        value = getattr(options, name)
        if value != default:
            found.append(f"{name}={value.value if isinstance(value, Enum) else value!r}")
    return found


def _decompositions(options: DecompositionOptions) -> tuple[list[str], list[str], list[str]]:
    """Return imports, keywords for `lower`, and lines that define rules, with a comment where that is for the user."""
    imports: list[str] = []
    keywords: list[str] = []
    remarks: list[str] = []
    if options.table is not None:
        keywords.append(f"decomposition_table={_rules(options.table, imports, remarks)}")
    if options.keep:
        keywords.append(f"keep={list(options.keep)}")
    if options.extra:
        keywords.append(f"extra={_rules(options.extra, imports, remarks)}")
    return list(dict.fromkeys(imports)), keywords, remarks


def _rules(rules: Mapping[Any, Callable[..., Any]], imports: list[str], remarks: list[str]) -> str:
    entries: list[str] = []
    for operator, rule in rules.items():
        variable = f"rule_{sum(not each.startswith('#') for each in remarks)}"
        module, name = getattr(rule, "__module__", None), getattr(rule, "__qualname__", "<")
        if module in (None, "__main__") or "<" in name:
            where = getattr(getattr(rule, "__code__", None), "co_filename", "a place unknown")
            line = getattr(getattr(rule, "__code__", None), "co_firstlineno", 0)
            remarks.append(f"# The rule of {operator} cannot be imported: write it here. It is {name}, {where}:{line}.")
            remarks.append(f"{variable} = None")
        else:
            if root := _root(module):
                imports.append(f"sys.path.insert(0, {root!r})")
            imports.append(f"import {module}")
            remarks.append(f"{variable} = {module}.{name}")
        entries.append(f"torch.ops.{operator}: {variable}")
    return f"{{{', '.join(entries)}}}"


def _root(module: str) -> str | None:
    """Return the directory that ``module`` is imported from, unless it is installed."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or "site-packages" in file:
        return None
    path = Path(file)
    levels = module.count(".") + (path.name == "__init__.py")
    return str(path.parents[levels])

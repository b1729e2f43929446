"""Which programs of other MLIR versions read our files, as text and as bytecode.

    python -m benchmarks.mlir_tools --write     # renew docs/mlir-versions.md

Small programs are lowered to each output type and saved in each format; every tool that is installed parses, verifies
and prints them. A cell says how many of the programs the tool read, and why it refused the first other one.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.rows import DOCS, renew
from examples import attention, mlp
from fx_importer import lower

PAGE = DOCS / "mlir-versions.md"
FORMATS = {"text": ".mlir", "bytecode": ".mlirbc", "artifact": ".stablehlo"}


class CausalMask(torch.nn.Module):
    """Reads a bool constant, whose elements MLIR packs in bits before LLVM 23."""

    mask: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(20, 20, dtype=torch.bool).tril())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.masked_fill(~self.mask, -1e9), -1)


PROGRAMS: dict[str, tuple[Callable[[], tuple[Any, tuple[torch.Tensor, ...]]], dict[str, Any]]] = {
    "mlp": (mlp.build, {}),
    "attention": (attention.build, {}),
    "bool constant": (lambda: (CausalMask(), (torch.zeros(20, 20),)), {}),
    "convolution": (lambda: (torch.nn.Conv2d(3, 4, 3).eval(), (torch.zeros(1, 3, 8, 8),)), {}),
    "dynamic batch": (mlp.build, {"dynamic_shapes": {"features": {0: "batch"}}}),
}


@dataclass(frozen=True)
class Tool:
    """A program that reads a file of MLIR. The placeholder ``FILE`` in ``command`` is the path."""

    name: str
    command: tuple[str, ...]
    output_types: tuple[str, ...]
    formats: tuple[str, ...] = ("text", "bytecode")


_JAXLIB = """
import sys
from jax._src.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

context, data = make_ir_context(), open(sys.argv[1], "rb").read()
if sys.argv[1].endswith(".stablehlo"):
    stablehlo.deserialize_portable_artifact(context, data)
else:
    ir.Module.parse(data, context)
"""
_IREE = ("iree-compile", "FILE", "--compile-to=input", "-o", "/dev/null")
TOOLS = (
    *(
        Tool(f"mlir-opt-{llvm}", (f"mlir-opt-{llvm}", "FILE", "-o", "/dev/null"), ("linalg-on-tensors", "tosa"))
        for llvm in (20, 21, 22, 23)
    ),
    Tool(
        "torch-mlir-opt",
        ("torch-mlir-opt", "FILE", "-o", "/dev/null"),
        ("raw", "torch", "linalg-on-tensors", "tosa", "stablehlo"),
    ),
    Tool("tosa-opt", ("tosa-opt", "FILE", "-o", "/dev/null"), ("tosa",)),
    Tool("iree-compile", (*_IREE, "--iree-input-type=torch"), ("torch",)),
    Tool("iree-compile", (*_IREE, "--iree-input-type=none"), ("linalg-on-tensors",)),
    Tool("iree-compile", (*_IREE, "--iree-input-type=tosa"), ("tosa",)),
    Tool("iree-compile", (*_IREE, "--iree-input-type=stablehlo"), ("stablehlo",), tuple(FORMATS)),
    Tool(
        "jaxlib",
        (sys.executable, "-c", _JAXLIB, "FILE"),
        ("stablehlo",),
        tuple(FORMATS),
    ),
)


def saved(directory: Path) -> Iterator[tuple[str, str, str, Path]]:
    """Lower the programs, and yield output type, format, name and file of each."""
    for output_type in ("raw", "torch", "linalg-on-tensors", "tosa", "stablehlo"):
        for name, (build, keywords) in PROGRAMS.items():
            model, inputs = build()
            lowered = lower(model, *inputs, output_type=output_type, **keywords)
            for kind, suffix in FORMATS.items():
                if kind != "artifact" or output_type == "stablehlo":
                    path = directory / f"{name.replace(' ', '_')}.{output_type}{suffix}"
                    lowered.save(path)
                    yield output_type, kind, name, path


def refusal(tool: Tool, path: Path) -> str | None:
    """Return the first error of ``tool`` on ``path``; None if it reads the file."""
    command = [str(path) if part == "FILE" else part for part in tool.command]
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=120)
    if ran.returncode == 0:
        return None
    lines = [line for line in ran.stderr.splitlines() if "error" in line.lower()]
    text = (lines or ran.stderr.splitlines() or [f"exit code {ran.returncode}"])[0]
    return re.sub(r"^\S+:\d+:\d+: |^.*?error: ", "", text).replace("error: ", "").replace("|", "\\|")[:70]


def table(directory: Path) -> str:
    """Return the table as Markdown."""
    found: dict[tuple[str, str, str], list[tuple[str, str | None]]] = {}
    for output_type, kind, name, path in saved(directory):
        for tool in TOOLS:
            if output_type in tool.output_types and kind in tool.formats and shutil.which(tool.command[0]):
                found.setdefault((output_type, tool.name, kind), []).append((name, refusal(tool, path)))
    lines = ["| output type | tool | format | reads | refuses |", "|---|---|---|---|---|"]
    for (output_type, tool_name, kind), rows in sorted(found.items()):
        read = sum(reason is None for _, reason in rows)
        refused = next((f"{name}: {reason}" for name, reason in rows if reason is not None), "")
        lines.append(f"| `{output_type}` | {tool_name} | {kind} | {read} of {len(rows)} | {refused} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.name}")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = table(Path(folder))
    print(text)
    if arguments.write:
        renew(PAGE, "benchmarks/mlir_tools.py --write", f"\n{text}\n")

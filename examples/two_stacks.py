"""Print what becomes of one function by Inductor and Triton, and by this package and MLIR, on the way to a GPU.

    python examples/two_stacks.py        # the artifact of each step, on a machine without a GPU

It needs the extras `iree`, `xla` and `triton`. Inductor generates Triton for its CPU device: it asks a GPU for its
properties.
"""

from __future__ import annotations

import importlib
import re
from contextlib import suppress
from typing import Any
from unittest import mock

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config, graph
from torch._inductor.exc import InductorError

from fx_importer import lower
from fx_importer.engines import XlaBackend
from fx_importer.fx_graph.triton_runtime import traceable_kernels


def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the softmax of the GELU of a product."""
    return torch.nn.functional.gelu(x @ weight).softmax(-1)


def of_dynamo(*args: torch.Tensor) -> str:
    """Return the graph that TorchDynamo captures."""
    found: list[str] = []
    torch._dynamo.reset()
    torch.compile(function, backend=lambda module, inputs: found.append(_graph(module)) or module.forward)(*args)
    return found[0]


def of_aot_autograd(*args: torch.Tensor) -> str:
    """Return the graph that AOTAutograd makes of it."""
    found: list[str] = []

    def keep(module: torch.fx.GraphModule, inputs: Any) -> Any:
        found.append(_graph(module))
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=aot_autograd(fw_compiler=keep))(*args)
    return found[0]


def of_inductor(*args: torch.Tensor) -> str:
    """Return the Triton kernel that Inductor generates. Nothing is compiled: triton has no backend for CPUs."""
    found: list[str] = []
    generate = graph.GraphLowering.codegen

    def keep(lowering: Any) -> Any:
        made = generate(lowering)
        found.append(made[0].value)
        raise _Enough

    importlib.import_module("triton")  # `traceable_kernels` is for processes that use it
    torch._dynamo.reset()
    with (
        traceable_kernels(),
        config.patch(cpu_backend="triton", force_disable_caches=True),
        mock.patch.object(graph.GraphLowering, "codegen", keep),
        suppress(InductorError),
    ):  # `_Enough`
        torch.compile(function)(*args)
    start = found[0].index("@triton.jit")
    return found[0][start : found[0].index("'''", start)].strip()


class _Enough(Exception):
    """Ends the compilation by Inductor."""


def of_mlir(*args: torch.Tensor) -> dict[str, str]:
    """Return the torch dialect, linalg and StableHLO, and what IREE and XLA make of them."""
    modules = {kind: lower(function, *args, output_type=kind) for kind in ("torch", "linalg-on-tensors", "stablehlo")}
    loaded: Any = XlaBackend().load(modules["stablehlo"].module)
    ptx = modules["linalg-on-tensors"].compile("cuda:sm_80")
    (text,) = (data.decode() for name, data in ptx.kernels.items() if name.endswith(".ptx"))
    return {
        "torch dialect": str(modules["torch"].module),
        "linalg": str(modules["linalg-on-tensors"].module),
        f"IREE, {ptx.dispatches} dispatches: PTX": "\n".join(text.splitlines()[:40]) + "\n...",
        "StableHLO": str(modules["stablehlo"].module),
        "XLA": _entry(loaded.compiled_text()),
    }


def _entry(hlo: str) -> str:
    """Return the instructions of the entry of a module of HLO, which call its fusions, without their attributes."""
    entry = hlo[hlo.index("\nENTRY") :]
    lines = entry[: entry.index("\n}")].strip().splitlines()[1:]
    return "\n".join(re.sub(r"(parameter\(\d+\)|constant\([^)]*\)|calls=[^,]*).*", r"\1", line) for line in lines)


def _graph(module: torch.fx.GraphModule) -> str:
    return re.sub(r"\s*#.*", "", module.print_readable(print_output=False)).strip()


def main() -> None:
    """Print the artifact of each step."""
    args = torch.randn(8, 16), torch.randn(16, 32)
    steps = {
        "TorchDynamo": of_dynamo(*args),
        "AOTAutograd": of_aot_autograd(*args),
        "Inductor: Triton": of_inductor(*args),
        **of_mlir(*args),
    }
    for name, text in steps.items():
        print(f"## {name}\n\n{text}\n")


if __name__ == "__main__":
    main()

"""Rules that are wrong, crash or do not terminate, and a pass that crashes, for processes that tests start."""

import os
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from fx_importer import lowers
from fx_importer.mlir.bindings import ir


def wrong(x: Tensor, approximate: str = "none") -> Tensor:
    """Compute another function than gelu."""
    return x * torch.sigmoid(1.6 * x)


def abort(x: Tensor, approximate: str = "none") -> NoReturn:
    os.write(2, b"LLVM ERROR: 7 is not 8\n")
    os.abort()


def loop(x: Tensor, approximate: str = "none") -> NoReturn:
    while True:
        time.sleep(1)  # sleeping uses no CPU time, and must be ended too


def other_each_time(x: Tensor, approximate: str = "none") -> NoReturn:
    """Raise another exception than in the previous process; a file records which one that was."""
    file = Path(os.environ["FX_IMPORTER_TEST_FILE"])
    name, _, process = file.read_text().partition(" ")
    if process != str(os.getpid()):
        name = "TypeError" if name == "ValueError" else "ValueError"
        file.write_text(f"{name} {os.getpid()}")
    raise ValueError("this") if name == "ValueError" else TypeError("that")


def abort_on_erf(module: ir.Operation) -> None:
    def see(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == "math.erf":
            os.abort()
        return ir.WalkResult.ADVANCE

    module.walk(see)


@torch.library.custom_op("faults::half", mutates_args=())
def half(x: Tensor) -> Tensor:
    return x / 2


@half.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@lowers(torch.ops.faults.half.default, into="tosa")
def wrong_half(emit: Any, x: Any) -> Any:
    return emit.mul(x, 0.25)

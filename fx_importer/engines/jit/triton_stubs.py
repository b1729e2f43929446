"""Stubs of Triton kernels: triton's interpreter runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fx_importer.errors import UsageError
from fx_importer.fx_graph.triton_kernel import KNOWN_KERNELS
from fx_importer.fx_graph.triton_runtime import interpreted_kernels
from fx_importer.manifest import OperatorStub


def kernel_function(stub: OperatorStub) -> Callable[[Sequence[Any]], list[torch.Tensor]]:
    """Return a function that launches the kernel of ``stub`` in its first variant, and returns what it writes.

    It takes the arguments of the stub in a list, and writes to copies of them.

    Raises:
        UsageError: if no program that was lowered in this process launches the kernel.
    """
    launch, known = stub.kernel, KNOWN_KERNELS.get(stub.to_json())
    assert launch is not None
    if known is None:
        raise UsageError(
            f"the module launches {stub.operator}, a Triton kernel that this process does not know: lower the model in "
            "this process"
        )

    def run(arguments: Sequence[Any]) -> list[torch.Tensor]:
        grid, *others = arguments[0], *arguments[len(launch.variants) :]
        values = dict(zip(launch.parameters, others, strict=True))
        for name in launch.writes:
            values[name] = values[name].clone()
        with interpreted_kernels():
            known.function[tuple(grid)](**values, **known.constants)
        return [values[name] for name in launch.writes]

    return run

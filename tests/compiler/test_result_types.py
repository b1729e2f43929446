"""Sizes of results in lowered modules, compared with those of the exported programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from fx_importer import UnsupportedProgramError
from fx_importer.compiler.result_types import check_result_types
from fx_importer.mlir.bindings import ir

X = torch.ones(6, 4)


def exported(function: Callable[..., Any], **dim: int) -> ExportedProgram:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function(x)

    return torch.export.export(Model(), (X,), dynamic_shapes=({0: Dim("n", **dim)},) if dim else None)


def check(program: ExportedProgram, *results: str) -> None:
    """Check the program against a function with results of these types."""
    types = ", ".join(results)
    values = ", ".join(f"%{number}" for number in range(len(results)))
    made = "\n".join(f'%{number} = "made"() : () -> {result}' for number, result in enumerate(results))
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(f"func.func @main() -> ({types}) {{\n{made}\nreturn {values} : {types}\n}}")
        check_result_types({"main": program}, module)


def largest(x: Tensor) -> Tensor:
    return torch.cat([x, x])


def selected(x: Tensor) -> Tensor:
    return x[x[:, 0] > 0]


@pytest.mark.parametrize(
    ("function", "dim", "result"),
    [
        (largest, {}, "tensor<12x4xf32>"),
        (largest, {}, "tensor<?x4xf32>"),
        (largest, {"min": 2}, "tensor<?x4xf32>"),
        (largest, {"min": 2, "max": 9}, "tensor<?x?xf32>"),
        (lambda x: x[:2], {"min": 4}, "tensor<2x4xf32>"),
        (lambda x: x.reshape(-1).shape[0] * torch.ones(3), {"min": 2}, "tensor<3xf32>"),
        (selected, {}, "tensor<?x4xf32>"),
        (lambda x: x.sum(), {"min": 2}, "tensor<f32>"),
        (lambda x: x.sum(), {"min": 2}, "f32"),
    ],
    ids=["static", "less known", "dynamic", "two dynamic", "part", "values", "mask", "scalar", "number"],
)
def test_same_sizes(function: Callable[..., Any], dim: dict[str, int], result: str) -> None:
    check(exported(function, **dim), result)


@pytest.mark.parametrize(
    ("function", "dim", "result", "reason"),
    [
        (largest, {}, "tensor<6x4xf32>", r"size 0 of the result is 12 in the program, and 6 in"),
        (largest, {"min": 2}, "tensor<12x4xf32>", r"cat = aten\.cat\.default: size 0 of the result is 2\*s\d+ in"),
        (largest, {"min": 2, "max": 9}, "tensor<4x4xf32>", r"and 4 in the lowered module"),
        (largest, {"min": 2}, "tensor<?x5xf32>", r"size 1 of the result is 4 in the program, and 5 in"),
        (
            selected,
            {},
            "tensor<6x4xf32>",
            r"= aten\.index\.Tensor: size 0 of the result is u0 in the program",
        ),
        (lambda x: x[:, None] + x, {"min": 2}, "tensor<6x?x4xf32>", r"size 0 of the result is s\d+ in"),
    ],
    ids=["static", "example size", "least size", "other axis", "mask", "broadcast"],
)
def test_other_sizes_are_refused(function: Callable[..., Any], dim: dict[str, int], result: str, reason: str) -> None:
    with pytest.raises(UnsupportedProgramError, match="(?s)1 result has another size in the lowered .*" + reason):
        check(exported(function, **dim), result)


def test_every_wrong_result_is_listed() -> None:
    program = exported(lambda x: (torch.cat([x, x]), x * 2), min=2)
    with pytest.raises(UnsupportedProgramError, match="2 results have") as raised:
        check(program, "tensor<12x4xf32>", "tensor<6x4xf32>")
    assert len(raised.value.unsupported_nodes) == 2


def test_functions_of_other_results_are_not_compared() -> None:
    check(exported(lambda x: (x, x)), "tensor<1xf32>")

"""The operator ``npu::scale_add``, and its lowering to TOSA."""

from __future__ import annotations

from typing import Any

import torch

from fx_importer import Lowerings, lowers


@torch.library.custom_op("npu::scale_add", mutates_args=())
def scale_add(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    """Return ``x * scale + y``, which eager PyTorch runs."""
    return x * scale + y


@scale_add.register_fake
def _(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


@lowers(torch.ops.npu.scale_add.default, into="tosa")
def scale_add_in_tosa(emit: Any, x: Any, y: Any, scale: float) -> Any:
    return emit.add(emit.mul(x, scale), y)


LOWERINGS = Lowerings([scale_add_in_tosa])


class Model(torch.nn.Module):
    """A model with the operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scale_add(torch.relu(x), x, 0.5)


def build() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    return Model(), (torch.randn(2, 3),)

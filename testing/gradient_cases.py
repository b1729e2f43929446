"""The gradients of one operator of OpInfo as a program, as in a joint graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from testing.fuzzing.inputs import direction
from testing.op_cases import Call, Exported, NothingToExport


class Gradients(nn.Module):
    """The gradients of a call's floating-point results, in fixed directions, by its floating-point inputs."""

    def __init__(self, call: Call):
        super().__init__()
        self.call = call

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the inputs that the arguments were made of."""
        return self.call.tensors()

    def unique(self, results: Any, tensors: tuple[Tensor, ...]) -> Any:
        """Return ``results``: what of them is unique is chosen before they are differentiated."""
        return results

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return a gradient for each input of floating-point numbers; of one that takes no part, zeros."""
        given = [each.detach().requires_grad_() if each.is_floating_point() else each for each in tensors]
        by = [each for each in given if each.requires_grad]
        results = pytree.tree_leaves(self.call.unique(self.call(*given), tuple(given)))
        of = [each for each in results if isinstance(each, Tensor) and each.is_floating_point() and each.requires_grad]
        if not by or not of:
            raise NothingToExport("no gradient")
        return torch.autograd.grad(of, by, [direction(each) for each in of], materialize_grads=True)


class ExportedGradients(Exported):
    """The gradients of the samples of one operator, exported."""

    def calls(self, op: Any, dtype: torch.dtype, samples: int) -> list[Any]:
        """Return the gradients of the first samples that have elements."""
        found = (Gradients(each) for each in self.pick(op, dtype, samples + 4))
        return [each for each in found if all(tensor.numel() for tensor in each.tensors())][:samples]

    def export(self, call: Any, inputs: tuple[Tensor, ...]) -> ExportedProgram:
        """Trace through autograd, which torch.export does not, and export the resulting graph."""
        graph = make_fx(call, tracing_mode="fake")(*(each.clone() for each in inputs))
        return torch.export.export(graph, inputs)

"""Programs of each rank that compute a loss and its gradients, from modules that are parallelized with DTensor."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fx_importer.distributed.local_tensors import as_dtensor, is_dtensor, local
from fx_importer.errors import UsageError


def export_gradients(
    module: torch.nn.Module, inputs: Sequence[Any], mesh: Any, averaged: Sequence[str]
) -> ExportedProgram:
    """Export what this rank computes of the loss that ``module`` returns, and of the gradients of its parameters.

    torch.export keeps no gradients between DTensors and their parts, so the gradients are traced by autograd.

    Args:
        module: returns the loss, a tensor of one element.
        inputs: of this rank.
        mesh: the `DeviceMesh` of all ranks.
        averaged: the axes along which the loss and the gradients are averaged; a gradient only along those that the
            mesh of its parameter does not have, since DTensor has summed it along the others.

    Raises:
        UsageError: if ``module`` returns anything else, or no parameter needs a gradient; or the mesh lacks an axis.
    """
    if unknown := [axis for axis in averaged if axis not in mesh.mesh_dim_names]:
        raise UsageError(f"gradients= names {', '.join(unknown)}, and the mesh has {', '.join(mesh.mesh_dim_names)}")
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    names: list[str] = []

    def step(parts: Mapping[str, torch.Tensor], *inputs: Any) -> list[torch.Tensor]:
        state = {name: as_dtensor(part.detach(), tensors[name]) for name, part in parts.items()}
        leaves = [state[name].requires_grad_() for name in trained]
        with torch.enable_grad():
            loss = torch.func.functional_call(module, state, inputs)
            _check_loss(loss)
            loss = loss.full_tensor() if is_dtensor(loss) else loss
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        by_name = {name: gradient for name, gradient in zip(trained, gradients, strict=True) if gradient is not None}
        names[:] = by_name
        placed = [_placed(tensor, tensors[name], mesh, averaged) for name, tensor in by_name.items()]
        return [_averaged(loss.detach(), mesh, averaged), *placed]

    parts = {name: local(tensor.detach()) for name, tensor in tensors.items()}
    graph = make_fx(step, tracing_mode="fake")(parts, *inputs)
    program = torch.export.export(_Step(module, parts, graph), tuple(inputs))
    return _with_gradients(program, names)


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        shape = list(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise UsageError(f"gradients= takes a module that returns the loss, a tensor of one element, not {shape}")
    if not loss.requires_grad:
        raise UsageError("gradients= takes a module whose loss depends on parameters that need gradients")


def _placed(gradient: torch.Tensor, parameter: Any, mesh: Any, averaged: Sequence[str]) -> torch.Tensor:
    """Return this rank's part of a gradient, divided as its parameter is."""
    known: Sequence[str] = ()
    if is_dtensor(parameter):
        known = parameter.device_mesh.mesh_dim_names
        gradient = local(gradient.redistribute(placements=parameter.placements))  # type: ignore[attr-defined]
    return _averaged(gradient, mesh, [axis for axis in averaged if axis not in known])


def _averaged(value: torch.Tensor, mesh: Any, axes: Sequence[str]) -> torch.Tensor:
    from torch.distributed._functional_collectives import all_reduce

    for axis in axes:
        value = all_reduce(value, "avg", (mesh, mesh.mesh_dim_names.index(axis)))
    return value


class _Step(torch.nn.Module):
    """A graph of weights and inputs, with the parts that this rank holds under the names of the whole weights."""

    def __init__(self, module: torch.nn.Module, parts: Mapping[str, torch.Tensor], graph: fx.GraphModule):
        super().__init__()
        trained, saved = dict(module.named_parameters()), module.state_dict().keys()
        for name, part in parts.items():
            *path, last = name.split(".")
            owner: torch.nn.Module = self
            for attribute in path:
                if attribute not in owner._modules:
                    owner.add_module(attribute, torch.nn.Module())
                owner = owner.get_submodule(attribute)
            if name in trained:
                owner.register_parameter(last, torch.nn.Parameter(part, requires_grad=False))
            else:
                owner.register_buffer(last, part, persistent=name in saved)

        def forward(*inputs: Any) -> Any:
            tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
            return graph({name: tensors[name] for name in parts}, *inputs)

        forward.__signature__ = inspect.signature(module.forward)  # for names of inputs
        self.forward = forward


def _with_gradients(program: ExportedProgram, names: Sequence[str]) -> ExportedProgram:
    """Name the outputs of ``program`` as a loss and the gradients of the parameters ``names``."""
    signature = program.graph_signature
    outputs = [spec for spec in signature.output_specs if spec.kind == OutputKind.USER_OUTPUT]
    loss, *gradients = outputs
    made: dict[Any, Any] = {id(loss): replace(loss, kind=OutputKind.LOSS_OUTPUT)}
    for spec, name in zip(gradients, names, strict=True):
        made[id(spec)] = replace(spec, kind=OutputKind.GRADIENT_TO_PARAMETER, target=name)
    signature.output_specs = [made.get(id(spec), spec) for spec in signature.output_specs]
    call = program.module_call_graph[0].signature
    assert call is not None
    call.out_spec = pytree.tree_structure(0)  # the loss alone
    return program

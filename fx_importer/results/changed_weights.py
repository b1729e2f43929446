"""Weights that were changed in place after the lowering, by the counters that PyTorch has for autograd."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram

from fx_importer.errors import UsageError
from fx_importer.manifest import Manifest
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import address_of, key_of, resources_in


@dataclass(frozen=True)
class LoweredWeight:
    """A weight with the counter of its changes when it was lowered."""

    tensor: torch.Tensor
    version: int
    is_read: bool
    """Whether constants of the module were computed from it."""

    @property
    def is_changed(self) -> bool:
        return self.tensor._version != self.version


def lowered_weights(
    programs: Mapping[str, ExportedProgram], read: Collection[str], manifest: Manifest
) -> tuple[LoweredWeight, ...]:
    """Return the weights of ``programs`` that a module depends on.

    Args:
        programs: the exported programs.
        read: the names of the weights from which constants were computed.
        manifest: of the module, which has the other weights too, except for state and those that it names.
    """
    tensors = {
        name: tensor
        for program in programs.values()
        for name, tensor in {**program.constants, **program.state_dict}.items()
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference()
    }
    outside = {*manifest.state, *manifest.weights_by_name}
    return tuple(
        LoweredWeight(tensor, tensor._version, name in read)
        for name, tensor in tensors.items()
        if name in read or name not in outside
    )


def check_weights(weights: Iterable[LoweredWeight], module: ir.Module) -> None:
    """Raise `UsageError` if a weight was changed of which ``module`` has copies, such as transposed or folded ones."""
    changed = [weight for weight in weights if weight.is_changed]
    if not changed:
        return
    live = _read_in_place(module)
    if any(weight.is_read or weight.tensor.data_ptr() not in live for weight in changed):
        raise UsageError(
            "weights of the model were changed in place after the lowering, which computed constants from them: lower "
            "the model again, or with weights='args', which takes them in each call"
        )


def _read_in_place(module: ir.Module) -> set[int]:
    """Return the addresses of the resources of ``module``, other than those that it has in another form too."""
    resources = {value: key_of(value) for _, _, value in resources_in(module.operation)}
    copied = {key.rpartition(".")[0] for key in resources.values()}  # its passes name copies so: weight.transposed
    return {address for value, key in resources.items() if key not in copied and (address := address_of(value))}

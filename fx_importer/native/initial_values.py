"""The tensors that entry points take and callers do not pass: state, and weights that are arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_importer.calls.memref import dense
from fx_importer.errors import UsageError

if TYPE_CHECKING:
    from fx_importer.results.lowered_record import LoweredRecord


def initial_values(lowered: LoweredRecord) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the initial state, and the weights that are arguments, by name, as the code reads them.

    Raises `UsageError` for state without a value.
    """
    values = lowered.initial_state()
    state: dict[str, torch.Tensor] = {}
    weights: dict[str, torch.Tensor] = {}
    for function in lowered.manifest.functions.values():
        for argument in function.arguments:
            if argument.kind not in ("state", "weight"):
                continue
            if argument.name not in values:
                raise UsageError(
                    f"the module was read without the initial value of '{argument.name}': pass program=, the exported "
                    "program, to fx_importer.load"
                )
            tensor = dense(values[argument.name].detach().cpu())
            if argument.passed_as is not None and not tensor.is_complex():
                tensor = tensor.to(getattr(torch, argument.passed_as))
            (state if argument.kind == "state" else weights)[argument.name] = tensor
    return state, weights


def is_zero(tensor: torch.Tensor) -> bool:
    """Return whether all bytes of ``tensor`` are 0."""
    return not tensor.reshape(-1).view(torch.uint8).any()

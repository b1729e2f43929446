"""Warnings about models that were exported in training mode, or that seed the random numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.errors import RandomNumbersWarning

_TRAINING = ("train", "training")
"""Parameters of operators that compute something else in training, in their schemas."""


def warn_of_training_mode(program: ExportedProgram, name: str) -> None:
    """Warn if operators of ``program``, of the model ``name``, drop elements or use the statistics of a batch."""
    called = {str(node.target).removeprefix("aten.").partition(".")[0] for node in program.graph.nodes}
    operators = dict.fromkeys(
        str(node.target).removeprefix("aten.").partition(".")[0] for node in _in_training(program)
    )
    if operators and not any(
        operator.endswith("_backward") for operator in called
    ):  # with gradients, training is meant
        warnings.warn(
            f"{name} is in training mode, and so are its operators {', '.join(operators)}: call model.eval() before, "
            "unless this is meant",
            stacklevel=2,
        )


def warn_of_seeding(program: ExportedProgram, name: str, seed: int) -> None:
    """Warn if tracing the model ``name`` replaced torch's ``seed``, and ``program`` has random numbers."""
    if torch.initial_seed() != seed and any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in program.graph.nodes
    ):
        warnings.warn(
            f"{name} calls torch.manual_seed, which torch.export does not record: the random numbers of the lowered "
            "program do not start from that seed. Pass what they should be as inputs",
            RandomNumbersWarning,
            stacklevel=2,
        )


def _in_training(program: ExportedProgram) -> Iterator[fx.Node]:
    for node in program.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            bound = dict(zip((argument.name for argument in node.target._schema.arguments), node.args, strict=False))
            bound |= node.kwargs
            trains = any(bound.get(flag) is True for flag in _TRAINING) and bound.get("p", bound.get("dropout", 1)) != 0
            if trains or ("attention" in str(node.target) and bound.get("dropout_p", 0) != 0):
                yield node

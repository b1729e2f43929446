"""A warning about models that were exported in training mode."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch
from torch import fx
from torch.export import ExportedProgram

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


def _in_training(program: ExportedProgram) -> Iterator[fx.Node]:
    for node in program.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            bound = dict(zip((argument.name for argument in node.target._schema.arguments), node.args, strict=False))
            bound |= node.kwargs
            trains = any(bound.get(flag) is True for flag in _TRAINING) and bound.get("p", bound.get("dropout", 1)) != 0
            if trains or ("attention" in str(node.target) and bound.get("dropout_p", 0) != 0):
                yield node

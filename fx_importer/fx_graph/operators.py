"""Operators by name, and placeholders for operators that the installed torch lacks."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

OUT_TAG = getattr(torch.Tag, "out", None)
"""The tag of operators that write to arguments which they do not read; None for torch 2.12, which has none."""


def operator_named(name: str) -> OpOverload | OpOverloadPacket | None:
    """Return the operator that torch prints as ``name``, with or without its overload or a leading ``torch.``.

    None if it is not registered in this process.
    """
    parts = name.removeprefix("torch.").removeprefix("ops.").split(".")
    if len(parts) not in (2, 3) or not all(parts):
        return None
    target: Any = torch.ops
    for part in parts:
        target = getattr(target, part, None)
    return target if isinstance(target, OpOverload | OpOverloadPacket) else None


class MissingOperator:
    """An operator, or one of its overloads, that the installed torch lacks.

    No graph contains it, so tables may have it as a key; decomposition tables skip it. Calling it raises
    `NotImplementedError`.
    """

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, overload: str) -> MissingOperator:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return MissingOperator(f"{self._name}.{overload}")

    def overloads(self) -> list[str]:
        """Return no overloads."""
        return []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch {torch.__version__} has no operator '{self._name}'")

    def __repr__(self) -> str:
        return f"<missing operator {self._name}>"


class Namespace:
    """The operators of a namespace of ``torch.ops``, with a `MissingOperator` for each that torch lacks.

    Operators are added and removed between releases of torch; a reference to a missing one must not fail the import.
    """

    def __init__(self, name: str):
        self._operators = getattr(torch.ops, name)
        self._name = name

    def __getattr__(self, operator: str) -> Any:
        try:
            target = getattr(self._operators, operator)
        except AttributeError:
            if operator.startswith("__") and not operator.rstrip("_").endswith("shift"):
                raise  # an attribute of Python's own; `__lshift__` and the like are operators
            target = MissingOperator(f"{self._name}.{operator}")
        setattr(self, operator, target)
        return target


aten: Any = Namespace("aten")
prims: Any = Namespace("prims")

"""Replacements of operators that outlive the program in which their rules were traced.

A replacement depends on the operator, the types of its arguments and the rules. In a process that lowers many programs
most calls have been traced before, and tracing a rule takes more time than all that is done with its graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from fx_importer.decompositions.engine.local.rule_tracing import Replacement

_LIMIT = 2000
"""The largest number of replacements that are kept; each takes some kilobytes."""
_OF_TORCH = ("aten", "prims")
"""Namespaces of operators that are not defined anew in a process."""


class RecordedReplacements:
    """Replacements by operator and static types of arguments, for rules that never change.

    They hold no example values of a program, and no weights.
    """

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Replacement, dict[fx.Node, Any]]] = {}

    def find(self, key: Any, mode: FakeTensorMode) -> Replacement | None:
        """Return the replacement recorded for ``key`` with example values in ``mode``; None if there is none."""
        if (known := self._known.get((key, _settings()))) is None:
            return None
        piece, types = known
        return replace(piece, values={node: _in_mode(value, mode) for node, value in types.items()})

    def add(self, key: Any, target: OpOverload, piece: Replacement) -> Replacement:
        """Record ``piece``, whose arguments have static sizes, unless more than their types is in it; return it."""
        nodes = (*piece.inputs, *piece.steps)
        if piece.constants or target.namespace not in _OF_TORCH or not nodes:
            return piece
        values = {node: node.meta["val"] for node in nodes}
        if not all(map(_is_type_only, values.values())):
            return piece
        types = {node: _type_of(value) for node, value in values.items()}
        for node in nodes[0].graph.nodes:
            known = types.get(node)  # example values hold their fake mode, and with it the sizes of a program
            node.meta = {"val": known.tensor} if isinstance(known, _Type) else {}
        if len(self._known) >= _LIMIT:
            self._known.clear()
        self._known[(key, _settings())] = piece, {node: types[node] for node in piece.steps}
        return replace(piece, values=values)


def _settings() -> tuple[Any, ...]:
    """Return the settings of torch that rules read."""
    attention = torch.backends.cuda
    return (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        *(attention.flash_sdp_enabled(), attention.mem_efficient_sdp_enabled(), attention.math_sdp_enabled()),
        *(torch.is_autocast_enabled(name) and torch.get_autocast_dtype(name) for name in ("cpu", "cuda")),
    )


def _is_type_only(value: Any) -> bool:
    """Return whether an example value is a fake tensor with nothing but a static type, a number, or several of them."""
    if type(value) in (tuple, list):
        return all(map(_is_type_only, value))
    if not isinstance(value, Tensor):
        return type(value) in (int, float, bool, type(None))
    if type(value) is not FakeTensor or value.layout is not torch.strided or value.constant is not None:
        return False
    sizes = (*value.shape, *value.stride(), value.storage_offset())
    return all(type(size) is int for size in sizes) and not (value.is_conj() or value.is_neg())


@dataclass(frozen=True)
class _Type:
    """The type of a tensor on ``device``, as a meta tensor."""

    tensor: Tensor
    device: torch.device


def _type_of(value: Any) -> Any:
    """Return an example value with its tensors replaced by their types."""
    if isinstance(value, tuple | list):
        return type(value)(map(_type_of, value))
    if not isinstance(value, Tensor):
        return value
    memory = torch.empty(0, dtype=value.dtype, device="meta")
    return _Type(memory.as_strided(value.shape, value.stride(), value.storage_offset()), value.device)


def _in_mode(value: Any, mode: FakeTensorMode) -> Any:
    """Return the example value of a type in ``mode``."""
    if isinstance(value, tuple | list):
        return type(value)(_in_mode(item, mode) for item in value)
    return FakeTensor(mode, value.tensor, value.device) if isinstance(value, _Type) else value

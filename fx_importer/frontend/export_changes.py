"""Changes of a call with which torch.export may capture a model: they are tried before they are suggested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ExportChange:
    """Other inputs or dynamic shapes of a model."""

    text: str
    """What is changed, as a suggestion."""
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    dynamic_shapes: Any

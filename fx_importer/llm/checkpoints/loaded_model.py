"""A transformers model that was read from files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class LoadedModel:
    """A model whose weights alias memory-mapped files wherever the stored form is unchanged.

    Attributes:
        model: a transformers model in evaluation mode.
        stored: the tensors in the files, keyed by their names in the files.
        names: the name in the files for each parameter whose name differs, keyed by parameter name.
    """

    model: Any
    stored: dict[str, torch.Tensor]
    names: dict[str, str] = field(default_factory=dict)

"""Small models of many families: architectures of `transformers` with random weights, and networks in plain `torch.nn`.

Building one imports what it needs; `transformers` is imported by no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from testing.families.caches import CACHES
from testing.families.further import FURTHER
from testing.families.language import LANGUAGE
from testing.families.perception import PERCEPTION
from testing.families.sequences import SEQUENCES
from testing.families.series import SERIES
from testing.families.structures import STRUCTURES
from testing.families.vision import VISION


@dataclass(frozen=True)
class FamilyModel:
    """One model: ``build`` returns it in eval mode, with positional and keyword inputs."""

    name: str
    family: str
    build: Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]


def _plain(name: str, family: str, build: Callable[[], tuple[nn.Module, tuple[Any, ...]]]) -> FamilyModel:
    def seeded() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        torch.manual_seed(0)
        model, inputs = build()
        return model.eval(), inputs, {}

    return FamilyModel(name, family, seeded)


_PLAIN = {"further": FURTHER, "images and points": VISION, "sequences": SEQUENCES, "structures": STRUCTURES}

FAMILIES: Mapping[str, FamilyModel] = {
    each.name: each
    for each in (
        *(_plain(name, family, build) for family, models in _PLAIN.items() for name, build in models.items()),
        *(FamilyModel(name, "cache", build) for name, build in CACHES.items()),
        *(FamilyModel(each.name, each.family, each.build) for each in (*LANGUAGE, *PERCEPTION, *SERIES)),
    )
}
"""Every model, by name."""

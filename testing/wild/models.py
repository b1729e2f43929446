"""The wild models of `models.toml`: packages of PyPI that CI does not install, each with a model and example inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tomllib


@dataclass(frozen=True)
class WildModel:
    """A model of a package."""

    package: str
    """The requirement with its pin."""
    category: str
    build: str
    """Python that ends with ``model`` and ``inputs``, and ``kwargs`` if there are any; it sees `torch` and `nn`."""
    dynamic: bool = True
    """Whether the first axis of the inputs is a batch, which may be dynamic."""

    @property
    def name(self) -> str:
        """The name of the package without its pin."""
        return self.package.partition("==")[0]


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
COMMON: tuple[str, ...] = tuple(_TABLE["common"])
"""What several packages need besides torch, numpy and scipy, which are those of the project's environment."""
MODELS = tuple(WildModel(**row) for row in _TABLE["model"])

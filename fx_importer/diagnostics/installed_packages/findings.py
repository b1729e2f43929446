"""The result of a check of the installation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    works: bool
    message: str = ""
    """The version or location found, or the reason of the failure."""
    extra: str | None = None
    """The extra that installs it, if it is not installed."""

    @property
    def verdict(self) -> str:
        return "works" if self.works else "not installed" if self.extra else "fails"

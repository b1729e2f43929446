"""The result of a check of the installation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    works: bool
    said: str = ""
    """What was found, or what went wrong."""
    extra: str | None = None
    """The extra that installs it, if it is not installed."""

    @property
    def verdict(self) -> str:
        return "works" if self.works else "not installed" if self.extra else "fails"

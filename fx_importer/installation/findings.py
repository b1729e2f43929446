"""What a look at an installation finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that was tried."""

    name: str
    works: bool
    said: str = ""
    """What was found, or what went wrong."""
    extra: str | None = None
    """Of what is not installed: the extra that brings it."""

    @property
    def verdict(self) -> str:
        return "works" if self.works else "not installed" if self.extra else "fails"

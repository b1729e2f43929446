"""Versions of the required packages: installed, accepted and tested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

DISTRIBUTION = "fx-importer"
_OURS = ("test", "dev", "docs", "bench")
"""Extras for development of this package."""


@dataclass(frozen=True)
class Package:
    """A distribution that this package requires."""

    name: str
    found: str | None
    """The installed version; None if it is not installed."""
    tested: str | None
    """The version in ``constraints.txt``."""
    accepted: str
    """The version range that is accepted, such as ``">=2.13,<3"``."""
    extra: str | None = None
    """The extra that requires it; None if the package itself does."""

    @property
    def fits(self) -> bool:
        """Whether the installed version is accepted."""
        return self.found is not None and Requirement(f"x{self.accepted}").specifier.contains(self.found, True)

    @property
    def verdict(self) -> str:
        if self.found is None:
            return "not installed"
        if not self.fits:
            return f"needs {self.accepted}"
        # The local part, as in 2.13.0+cpu, identifies the build.
        return "as tested" if self.found.partition("+")[0] == self.tested else f"tested with {self.tested}"

    @property
    def advice(self) -> str | None:
        """The requirement to pass to pip; None if nothing is wrong."""
        if self.fits or (self.extra and self.found is None):  # a missing backend has advice on its extra
            return None
        return f"{self.name}{self.accepted}"


def packages() -> tuple[Package, ...]:
    """Return the required packages: first of the package itself, then of its extras."""
    tested = _tested()
    return tuple(
        Package(
            requirement.name,
            _version(requirement.name),
            tested.get(requirement.name),
            str(requirement.specifier),
            extra,
        )
        for requirement, extra in _requirements()
    )


def _requirements() -> Iterator[tuple[Requirement, str | None]]:
    """Yield the requirements, each with its first extra: others, as ``vela``, may bring it too."""
    seen: set[str] = set()
    about = metadata.metadata(DISTRIBUTION)
    extras = [name for name in about.get_all("Provides-Extra") or () if name not in _OURS]
    required = [Requirement(text) for text in about.get_all("Requires-Dist") or ()]
    for extra in (None, *extras):
        for requirement in required:
            always = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            wanted = (
                always
                if extra is None
                else not always and requirement.marker and requirement.marker.evaluate({"extra": extra})
            )
            if wanted and requirement.name not in seen:
                seen.add(requirement.name)
                yield requirement, extra


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _tested() -> dict[str, str]:
    """Return the versions in ``constraints.txt``, which is next to the package in a checkout, or in its metadata."""
    checkout = Path(__file__).parents[3] / "constraints.txt"
    installed = metadata.distribution(DISTRIBUTION).read_text("extra_metadata/constraints.txt")
    text = checkout.read_text() if checkout.is_file() else installed
    lines = [line for line in (text or "").splitlines() if line and not line.startswith("#")]
    pinned = [Requirement(line) for line in lines]
    return {
        requirement.name: next(iter(requirement.specifier)).version
        for requirement in pinned
        if requirement.marker is None or requirement.marker.evaluate()
    }

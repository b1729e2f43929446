"""Size, time and hash of the weight files of an import, by which a later change is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fx_importer.errors import UsageError
from fx_importer.weights import stored_in

_PIECE = 1 << 20


@dataclass(frozen=True)
class Stamp:
    """A weight file as it was at the import."""

    size: int
    modified: int
    """The time of the last change, in nanoseconds since the epoch."""
    sha256: str


def stamps_of(folder: Path, weights: Iterable[str]) -> dict[str, Stamp]:
    """Return the stamps of the files in ``weights``, by the path that an imported ``folder`` has for each."""
    return {_name(path, folder): _stamp(path) for path in _files(folder, weights)}


def check_stamps(folder: Path, weights: Iterable[str], stamps: Mapping[str, Stamp] | None) -> None:
    """Check that the files in ``weights`` are the imported ones. Only one with another time is read, for its hash.

    Raises:
        UsageError: naming the first file that is missing, changed or new.
    """
    again = f"import the model again, or bring back the files that '{folder}' was imported from"
    if stamps is None:
        raise UsageError(f"'{folder}' does not say which weights it was imported from, as before version 0.4: {again}")
    for name in stamps:
        if not (folder / name).is_file():
            raise UsageError(f"the weights in '{folder / name}' are not there any more: {again}")
    for path in _files(folder, weights):
        stamp = stamps.get(_name(path, folder))
        if stamp is None:
            raise UsageError(f"the weights in '{path}' were not there at the import: {again}")
        size, modified = path.stat().st_size, path.stat().st_mtime_ns
        if size != stamp.size:
            raise UsageError(f"the weights in '{path}' changed, from {stamp.size:,} to {size:,} bytes: {again}")
        if modified != stamp.modified and _sha256(path) != stamp.sha256:
            raise UsageError(f"the weights in '{path}' changed, with the same size and another hash: {again}")


def _files(folder: Path, weights: Iterable[str]) -> list[Path]:
    return sorted({stored.file.path for weight in weights for stored in stored_in(folder / weight).values()})


def _name(path: Path, folder: Path) -> str:
    """Return ``path`` relative to the imported ``folder`` if it is in it; else as it is."""
    folder = folder.absolute()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return Stamp(status.st_size, status.st_mtime_ns, _sha256(path))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()

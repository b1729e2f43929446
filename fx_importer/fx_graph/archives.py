"""Zip archives of ``torch.save`` and ``torch.export.save``, which are checked before torch reads them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

from fx_importer.errors import UsageError, first_line

_MAX_EXPANDED = 256 * 2**20
"""Bytes that entries may have in all where the archive has fewer, as a compressed one has."""


def check_archive(path: Path) -> list[str]:
    """Return the entries of an exported program, after a check of their checksums, which torch leaves out, and sizes.

    Raises:
        UsageError: if the file is damaged, or expands to far more than it has.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_expansion(archive, path.stat().st_size)
            names = archive.namelist()
            damaged = archive.testzip()
    except Exception as error:  # zipfile raises errors of many types for damaged archives
        detail = "" if isinstance(error, zipfile.BadZipFile) else f" ({first_line(error)})"
        raise UsageError(
            f"'{path}' is not what torch.export.save writes: it is not a whole zip archive{detail}"
        ) from None
    if damaged is not None:
        raise UsageError(f"'{path}' is damaged: the checksum of '{damaged}' differs")
    if not any(name.endswith("/models/model.json") for name in names):
        raise UsageError(
            f"'{path}' is not what torch.export.save writes: it is a zip archive without an exported program "
            f"(torch.save and torch.jit.save write such)"
        )
    return names


def _check_expansion(archive: zipfile.ZipFile, size: int) -> None:
    expanded = sum(entry.file_size for entry in archive.infolist())
    if expanded > max(size, _MAX_EXPANDED):
        raise ValueError(f"its {size:,} bytes would expand to {expanded:,}")


def read_objects(saved: bytes | Path) -> Any:
    """Return what ``torch.save`` wrote: tensors, on the CPU, numbers and containers.

    Raises an exception of any type for other objects, for a damaged archive, and for tensors larger than it.
    """
    size = saved.stat().st_size if isinstance(saved, Path) else len(saved)
    file = saved if isinstance(saved, Path) else io.BytesIO(saved)
    with zipfile.ZipFile(file) as archive:
        _check_expansion(archive, size)
    opened = file if isinstance(file, Path) else io.BytesIO(file.getvalue())
    found = torch.load(opened, map_location="cpu", weights_only=True)
    for tensor in pytree.tree_leaves(found):
        if not isinstance(tensor, torch.Tensor) or tensor.is_meta:
            continue
        if tensor.is_nested:
            raise ValueError("a nested tensor is not read from a file")
        if tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > max(size, _MAX_EXPANDED):
            raise ValueError(f"a tensor of {tensor.untyped_storage().nbytes():,} bytes is larger than its file")
    return found

"""The file of weights, of the format safetensors, and the C functions that map it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from fx_importer.native.library import ALIGNMENT, Library, Part

_POSIX = """
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int NAME_map_weights(const char *path, const void **weights) {
  if (path == NULL || weights == NULL) return PREFIX_ERROR_NULL;
  *weights = NULL;
  int file = open(path, O_RDONLY);
  if (file < 0) return PREFIX_ERROR_WEIGHTS;
  struct stat about;
  unsigned char *map = MAP_FAILED;
  if (!fstat(file, &about) && (uint64_t)about.st_size == FILE_BYTES)
    map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (map == MAP_FAILED) return PREFIX_ERROR_WEIGHTS;
  uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a of the header, which has the SHA-256 of the weights */
  for (size_t i = 0; i < DATA_BEGIN; i++) hash = (hash ^ map[i]) * UINT64_C(1099511628211);
  if (hash != HEADER_HASH) {
    munmap(map, FILE_BYTES);
    return PREFIX_ERROR_WEIGHTS;
  }
  *weights = map + DATA_BEGIN;
  return PREFIX_OK;
}

void NAME_unmap_weights(const void *weights) {
  if (weights != NULL) munmap((void *)((uintptr_t)weights - DATA_BEGIN), FILE_BYTES);
}
"""


def weight_reader(library: Library) -> str:
    """Return the functions that map the file that begins with the header of ``library``."""
    source = _POSIX.replace("NAME", library.name).replace("PREFIX", library.name.upper())
    begin = len(library.file_header)
    hashed = 14695981039346656037
    for byte in library.file_header:
        hashed = (hashed ^ byte) * 1099511628211 % (1 << 64)
    numbers = {"FILE_BYTES": begin + library.weights_bytes, "DATA_BEGIN": begin, "HEADER_HASH": hashed}
    for text, value in numbers.items():
        source = source.replace(text, f"UINT64_C({value})")
    return source


def file_header(parts: Sequence[Part], block: Path) -> bytes:
    """Return what stands before the ``block`` of weights in a file: a length and JSON, a multiple of `ALIGNMENT`."""
    tensors: dict[str, object] = {"__metadata__": {"format": "fx-importer", "sha256": _digest(block)}}
    end = 0
    for part in parts:
        if part.offset > end:  # the format has no gaps
            tensors[f"__padding_{end}__"] = _tensor("U8", [part.offset - end], end, part.offset)
        tensors[part.name] = _tensor(part.dtype, list(part.shape), part.offset, end := part.offset + part.nbytes)
    if (size := block.stat().st_size) > end:
        tensors[f"__padding_{end}__"] = _tensor("U8", [size - end], end, size)
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

"""The C functions that map files of weights."""

from __future__ import annotations

from fx_importer.native.library import Library
from fx_importer.native.weight_files import SAMPLE

_POSIX = """
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fx_hash_file(int file, uint64_t at, uint64_t bytes, uint64_t *hash) { /* FNV-1a */
  while (bytes) {
    unsigned char piece[4096];
    ssize_t count = pread(file, piece, bytes < sizeof piece ? bytes : sizeof piece, (off_t)at);
    if (count <= 0) return false;
    for (ssize_t i = 0; i < count; i++) *hash = (*hash ^ piece[i]) * UINT64_C(1099511628211);
    at += (uint64_t)count;
    bytes -= (uint64_t)count;
  }
  return true;
}

/* Map what follows `skipped` bytes to `place` if header and samples have the hash, and return whether it is mapped. */
static bool fx_map_file(const char *path, unsigned char *place, uint64_t bytes, uint64_t header, uint64_t skipped,
                        uint64_t hash) {
  int file = path == NULL ? -1 : open(path, O_RDONLY);
  if (file < 0) return false;
  struct stat about;
  uint64_t found = UINT64_C(14695981039346656037), step = (bytes - header) / 256;
  bool same = !fstat(file, &about) && (uint64_t)about.st_size == bytes && fx_hash_file(file, 0, header, &found);
  for (uint64_t at = header; same && at < bytes; at += step ? step : 1)
    same = fx_hash_file(file, at, bytes - at < SAMPLE ? bytes - at : SAMPLE, &found);
  same = same && found == hash;
  if (same && bytes > skipped)
    same = mmap(place, bytes - skipped, PROT_READ, MAP_SHARED | MAP_FIXED, file, (off_t)skipped) != MAP_FAILED;
  close(file);
  return same;
}

int NAME_map_weights(PARAMETER, const void **weights) {
  if (weights == NULL || PATHS == NULL) return PREFIX_ERROR_NULL;
  *weights = NULL;
  unsigned char *map = mmap(NULL, BLOCK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0);
  if (map == MAP_FAILED) return PREFIX_ERROR_WEIGHTS;
  if (!(FILES)) {
    munmap(map, BLOCK_BYTES);
    return PREFIX_ERROR_WEIGHTS;
  }
  *weights = map;
  return PREFIX_OK;
}

void NAME_unmap_weights(const void *weights) {
  if (weights != NULL) munmap((void *)(uintptr_t)weights, BLOCK_BYTES);
}
"""


def weight_reader(library: Library) -> str:
    """Return the functions that map the files of ``library``."""
    calls: list[str] = []
    for number, file in enumerate(library.files):
        numbers = f"UINT64_C({file.nbytes}), {file.header}, {file.skipped}, UINT64_C({file.check})"
        path = f"paths[{number}]" if library.takes_paths else "path"
        calls.append(f"fx_map_file({path}, map + {file.place}, {numbers})")
    source = _POSIX.replace("SAMPLE", str(SAMPLE))
    for text, value in {
        "NAME": library.name,
        "PREFIX": library.name.upper(),
        "PARAMETER": "const char *const *paths" if library.takes_paths else "const char *path",
        "PATHS": "paths" if library.takes_paths else "path",
        "BLOCK_BYTES": f"UINT64_C({library.weights_bytes})",
        "FILES": " &&\n        ".join(calls),
    }.items():
        source = source.replace(text, value)
    return source

"""The C functions that map the file of weights, of the format safetensors."""

from __future__ import annotations

from fx_importer.native.library import Library

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
  unsigned char length[8];
  void *map = MAP_FAILED;
  if (!fstat(file, &about) && about.st_size == (off_t)FILE_BYTES && read(file, length, 8) == 8) {
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | length[i];
    if (header == HEADER_BYTES) map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file, 0);
  }
  close(file);
  if (map == MAP_FAILED) return PREFIX_ERROR_WEIGHTS;
  *weights = (const unsigned char *)map + DATA_BEGIN;
  return PREFIX_OK;
}

void NAME_unmap_weights(const void *weights) {
  if (weights != NULL) munmap((void *)((uintptr_t)weights - DATA_BEGIN), FILE_BYTES);
}
"""


def weight_reader(library: Library, header_bytes: int = 0) -> str:
    """Return the functions."""
    source = _POSIX.replace("NAME", library.name).replace("PREFIX", library.name.upper())
    begin = 8 + header_bytes
    for text, value in (
        ("FILE_BYTES", begin + library.weights_bytes),
        ("HEADER_BYTES", header_bytes),
        ("DATA_BEGIN", begin),
    ):
        source = source.replace(text, f"INT64_C({value})" if text == "FILE_BYTES" else str(value))
    return source

"""The program of ``kind="executable"``: it calls a function on tensors of files, for tests of a build."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fx_importer.native.abi import EntryPoint, Value
from fx_importer.native.library import ALIGNMENT, Library, has_state, inputs_of, outputs_of
from fx_importer.native.sizes import HELPERS, in_c

_READ = """
static void fx_stop(const char *path, const char *text) {
  fprintf(stderr, "%s: %s\\n", path, text);
  exit(2);
}

/* Write the header of a .npy file to `text`, 64 * 16 bytes at most, and return its bytes; 0 for other files. */
static size_t fx_npy_header(const char *path, unsigned char *text, const char *type, int rank, const int64_t *shape) {
  size_t length = strlen(path), at = 10;
  if (length < 4 || strcmp(path + length - 4, ".npy")) return 0;
  char *header = (char *)text;
  at += (size_t)sprintf(header + at, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
  for (int i = 0; i < rank; i++)
    at += (size_t)sprintf(header + at, "%s%lld", i ? ", " : "", (long long)shape[i]);
  at += (size_t)sprintf(header + at, rank == 1 ? ",), }" : "), }");
  for (; (at + 1) % 64; at++) header[at] = ' ';
  header[at++] = '\\n';
  memcpy(header, "\\x93NUMPY\\1\\0", 8);
  text[8] = (unsigned char)((at - 10) % 256);
  text[9] = (unsigned char)((at - 10) / 256);
  return at;
}

/* Read a file of raw bytes, or, of .npy, one that numpy.save writes of this type and shape. */
static void *fx_read(const char *path, size_t bytes, const char *type, int rank, const int64_t *shape) {
  unsigned char expected[1024], found[1024];
  size_t header = fx_npy_header(path, expected, type, rank, shape), size = 0;
  FILE *file = fopen(path, "rb");
  size_t room = (bytes + 63) / 64 * 64 + 64;
  unsigned char *memory = aligned_alloc(64, room);
  if (file == NULL || memory == NULL) fx_stop(path, "cannot be read");
  if (header) {
    if (fread(found, 1, 10, file) == 10) size = found[8] + 256u * found[9] + 10;
    if (size < 11 || size > sizeof found || fread(found + 10, 1, size - 10, file) != size - 10) size = 0;
    while (size && (found[size - 1] == ' ' || found[size - 1] == '\\n')) size--;
    while (expected[header - 1] == ' ' || expected[header - 1] == '\\n') header--;
    if (size != header || memcmp(expected + 10, found + 10, header - 10)) {
      expected[header] = 0;
      fprintf(stderr, "%s: not a .npy file of %s\\n", path, (char *)expected + 10);
      exit(2);
    }
  }
  if (fread(memory, 1, room, file) != bytes) {
    fprintf(stderr, "%s: not a file of %zu bytes\\n", path, bytes);
    exit(2);
  }
  fclose(file);
  return memory;
}

static void fx_write(const char *path, const void *memory, size_t bytes, const char *type, int rank,
                     const int64_t *shape) {
  unsigned char text[1024];
  size_t header = fx_npy_header(path, text, type, rank, shape);
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(text, 1, header, file) != header || fwrite(memory, 1, bytes, file) != bytes ||
      fclose(file))
    fx_stop(path, "cannot be written");
}

static void *fx_memory(size_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
  if (memory == NULL) {
    fprintf(stderr, "no memory for %zu bytes\\n", bytes);
    exit(2);
  }
  return memory;
}

static void fx_check(int status) {
  if (status) {
    fprintf(stderr, "%d: %s\\n", status, NAME_status_text(status));
    exit(1);
  }
}
"""


def program(library: Library) -> str:
    """Return the C source of a program whose arguments are a function, a number of calls, sizes, and files.

    The files are of the inputs and then of the outputs, of numpy's format for names in .npy, or else raw bytes; a
    number is an argument itself.
    """
    branches = "\n".join(_branch(library, entry) for entry in library.entries)
    names = " ".join(entry.c_name for entry in library.entries)
    return f"""#include "{library.name}.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
{HELPERS}{_READ.replace("NAME", library.name)}
int main(int count, char **arguments) {{
  if (count < 3) {{
    fprintf(stderr, "usage: %s FUNCTION CALLS SIZE... INPUT... OUTPUT...\\nfunctions: {names}\\n", arguments[0]);
    return 2;
  }}
  fx_check({library.name}_check_processor());
  long calls = atol(arguments[2]);
  char **next = arguments + 3;
{branches}
  fprintf(stderr, "no function %s: {names}\\n", arguments[1]);
  return 2;
}}
"""


def _branch(library: Library, entry: EntryPoint) -> str:
    name = f"{library.name}_{entry.c_name}"
    inputs, outputs = inputs_of(entry), outputs_of(entry)
    expected = 3 + len(entry.sizes) + len(inputs) + len(outputs) + library.takes_weights
    lines = [f'  if (!strcmp(arguments[1], "{entry.c_name}")) {{']
    lines.append(
        f'    if (count != {expected}) {{ fprintf(stderr, "{expected - 1} arguments are needed\\n"); return 2; }}'
    )
    names = {size.name: size.c_name for size in entry.sizes}
    passed: list[str] = []
    if library.takes_weights:
        lines.append("    const void *weights = NULL;")
        if library.weights == "file":
            lines.append(f"    fx_check({library.name}_map_weights(*next++, &weights));")
        else:
            lines.append(f'    weights = fx_read(*next++, {library.macro("WEIGHTS_BYTES")}, "", 0, NULL);')
    if has_state(entry):
        first = "weights, " if library.takes_weights else ""
        size = library.macro("STATE_BYTES")
        lines.append(f"    {library.name}_state *state;")
        lines.append(f"    fx_check({library.name}_create({first}fx_memory({size}), {size}, &state));")
        passed.append("state")
    passed += ["weights"] * library.takes_weights
    for size in entry.sizes:
        lines.append(f"    int64_t {size.c_name} = atoll(*next++);")
        passed.append(size.c_name)
    for value in inputs:
        if value.shape is None:
            convert = "atof" if value.dtype == "float" else "atoll"
            lines.append(f"    {value.c_type} {value.c_name} = {convert}(*next++);")
        else:
            nbytes = _bytes(value.c_name, [in_c(size, names) for size in value.sizes])
            lines.append(f"    {value.c_type} *{value.c_name};")
            lines.append(f"    {value.c_name} = fx_read(*next++, {nbytes}, {_described(value, names)});")
        passed.append(value.c_name)
    for value in outputs:
        nbytes = _bytes(value.c_name, [in_c(size, names) for size in value.sizes])
        lines.append(f"    {value.c_type} *{value.c_name};")
        lines.append(f"    size_t {value.c_name}_bytes = {nbytes};")
        lines.append(f"    {value.c_name} = fx_memory({value.c_name}_bytes);")
        passed.append(value.c_name)
    lines += [
        f"    size_t bytes = {name}_arena_bytes({', '.join(size.c_name for size in entry.sizes)});",
        f"    void *arena = fx_memory(bytes + {ALIGNMENT});",
        "    clock_t begin = clock();",
        f"    for (long call = 0; call < calls; call++) fx_check({name}({', '.join((*passed, 'arena', 'bytes'))}));",
        '    printf("%.9f\\n", (double)(clock() - begin) / CLOCKS_PER_SEC / (calls > 0 ? calls : 1));',
    ]
    lines += [
        f"    fx_write(*next++, {value.c_name}, {value.c_name}_bytes, {_described(value, names)});" for value in outputs
    ]
    return "\n".join([*lines, "    return 0;", "  }"])


def _described(value: Value, names: Mapping[str, str]) -> str:
    """Return the type as numpy spells it, the rank and the shape, as arguments in C."""
    shape = [in_c(size, names) for size in value.shape or ()]
    sizes = ", ".join(f"(int64_t)({size})" for size in shape) or "0"
    return f'"{_npy_type(value)}", {len(shape)}, (const int64_t[]){{{sizes}}}'


def _npy_type(value: Value) -> str:
    if value.dtype.startswith("complex"):
        return np.dtype(value.dtype).str
    name = {"float": "float32", "double": "float64"}.get(value.c_type, value.c_type.removesuffix("_t"))
    return np.dtype("float16" if value.dtype == "float16" else name).str


def _bytes(name: str, sizes: list[str]) -> str:
    return " * ".join([f"sizeof(*{name})", *(f"(size_t)({size})" for size in sizes)])

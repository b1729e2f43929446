"""The program of ``kind="executable"``: it calls a function on tensors of files, for tests of a build."""

from __future__ import annotations

from fx_importer.native.abi import EntryPoint
from fx_importer.native.library import ALIGNMENT, Library, has_state, inputs_of, outputs_of
from fx_importer.native.sizes import HELPERS, in_c

_READ = """
static void *fx_read(const char *path, size_t bytes) {
  FILE *file = fopen(path, "rb");
  size_t room = (bytes + 63) / 64 * 64 + 64;
  unsigned char *memory = aligned_alloc(64, room);
  if (file == NULL || memory == NULL || fread(memory, 1, room, file) != bytes) {
    fprintf(stderr, "%s: not a file of %zu bytes\\n", path, bytes);
    exit(2);
  }
  fclose(file);
  return memory;
}

static void fx_write(const char *path, const void *memory, size_t bytes) {
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(memory, 1, bytes, file) != bytes || fclose(file)) {
    fprintf(stderr, "%s: cannot be written\\n", path);
    exit(2);
  }
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

    The files are of the inputs and then of the outputs, as raw bytes; a number is an argument itself.
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
            lines.append(f"    weights = fx_read(*next++, {library.macro('WEIGHTS_BYTES')});")
    if has_state(entry):
        given = "weights, " if library.takes_weights else ""
        size = library.macro("STATE_BYTES")
        lines.append(f"    {library.name}_state *state;")
        lines.append(f"    fx_check({library.name}_create({given}fx_memory({size}), {size}, &state));")
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
            lines.append(f"    {value.c_name} = fx_read(*next++, {nbytes});")
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
    lines += [f"    fx_write(*next++, {value.c_name}, {value.c_name}_bytes);" for value in outputs]
    return "\n".join([*lines, "    return 0;", "  }"])


def _bytes(name: str, sizes: list[str]) -> str:
    return " * ".join([f"sizeof(*{name})", *(f"(size_t)({size})" for size in sizes)])

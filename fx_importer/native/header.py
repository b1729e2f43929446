"""The C header of a library."""

from __future__ import annotations

import numpy as np

from fx_importer.manifest import Scale
from fx_importer.native.abi import EntryPoint, Value
from fx_importer.native.cmsis_nn import ROUNDING
from fx_importer.native.library import (
    ALIGNMENT,
    STATUSES,
    Library,
    count_of,
    has_state,
    inputs_of,
    outputs_of,
    parameters,
    size_parameters,
)
from fx_importer.rewrites.llvm.runtime_checks import INCONSISTENT
from fx_importer.rewrites.native.status_checks import FIRST_STATUS


def header(library: Library) -> str:
    """Return the text of the header of ``library``."""
    guard = f"{library.name.upper()}_H"
    parts = [
        _about(library),
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        _statuses(library),
        "".join(f"#define {library.macro(name)} {value}\n" for name, value in library.constants.items()),
        _weights(library),
        _state(library),
        *(_entry(library, entry) for entry in library.entries),
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {guard} */\n",
    ]
    return "\n".join(part for part in parts if part)


def _about(library: Library) -> str:
    target = library.target
    threads = "the threads of OpenMP: link with -fopenmp" if target.processor.threads else "one thread"
    return f"""/* {library.name}.h: a model as native code, written by fx-importer.
 *
 * Target: {target.name} ({target.triple}, {target.cpu}). {target.about}
 *
 * Tensors are row-major. A function allocates no memory and calls no operating system: it computes in `arena`, memory
 * of the caller that is aligned to {ALIGNMENT} bytes. Outputs overlap neither inputs nor the arena.
 * Every function returns a status, 0 if all is well; outputs are undefined after another one.
 *
 * Threads: there are no writable globals. Threads may call together, each with an arena of its own{_threads(library)}.
 * A call runs on {threads}.{_blas(library)}{_cmsis_nn(library)}
 */
"""


def _blas(library: Library) -> str:
    """Return what a program must know of the BLAS that the code calls."""
    if library.blas is None:
        return ""
    return f"""
 *
 * BLAS: large matmuls call {" and ".join(library.blas.routines.values())}. {library.blas.linked}; ship it with the
 * program. It may allocate memory and use threads: OPENBLAS_NUM_THREADS, MKL_NUM_THREADS or its functions set their
 * number, on which the rounding of sums may depend. If threads call together, it must be built for that."""


def _cmsis_nn(library: Library) -> str:
    """Return what a program must know of the CMSIS-NN that the code calls."""
    if library.cmsis_nn is None or not library.cmsis_nn.layers:
        return ""
    layers = f"CMSIS-NN: layers call {' and '.join(library.cmsis_nn.functions)}"
    if library.target.architecture != "any":
        return f"""
 *
 * {layers}, which are in this library, with
 * names that begin with {library.name}_. The license of CMSIS-NN holds for them."""
    return f"""
 *
 * {layers}. Compile this source
 * and CMSIS-NN with -D{ROUNDING}."""


def _threads(library: Library) -> str:
    return " and state" if library.state else ""


def _statuses(library: Library) -> str:
    macro = library.macro
    lines = [f"  {macro(name)} = {number}, /* {text} */" for number, (name, text) in enumerate(STATUSES.items())]
    for number, message in enumerate(library.messages):
        if message.startswith(INCONSISTENT):  # there are many, of no model that is known
            continue
        lines.append(f"  /* {FIRST_STATUS + number}: {_comment(message)} */")
    return (
        "enum {\n" + "\n".join(lines) + f"\n}};\n\n/* The text of a status: a constant, never NULL. */\n"
        f"const char *{library.name}_status_text(int status);\n\n"
        f"/* {macro('ERROR_PROCESSOR')} if this processor cannot run the code; ask once, before other calls. */\n"
        f"int {library.name}_check_processor(void);\n"
    )


def _comment(text: str) -> str:
    return " ".join(text.replace("*/", "* /").split())


def _weights(library: Library) -> str:
    if not library.takes_weights:
        return ""
    text = f"""/* The weights: one block of bytes, aligned to {ALIGNMENT}, which all functions share and none writes. */
#define {library.macro("WEIGHTS_BYTES")} {library.weights_bytes}
"""
    if library.weights == "pointer":
        return text
    if library.takes_paths:
        names = "\n".join(f" *   {_comment(file.name)}" for file in library.files)
        return (
            text
            + f"""#define {library.macro("WEIGHTS_FILES")} {len(library.files)}

/* Map files, and set `weights`. Their paths, in this order, are of the files of the build, wherever they are now:
{names}
 * The map lasts until `unmap`.
 */
int {library.name}_map_weights(const char *const *paths, const void **weights);
void {library.name}_unmap_weights(const void *weights);
"""
        )
    return (
        text
        + f"""
/* Map {library.name}.safetensors, or another file of its layout, and set `weights`. The map lasts until `unmap`. */
int {library.name}_map_weights(const char *path, const void **weights);
void {library.name}_unmap_weights(const void *weights);
"""
    )


def _state(library: Library) -> str:
    if not library.state:
        return ""
    name, macro = library.name, library.macro
    lines = "\n".join(f" *   {_comment(part.name)}: {part.nbytes} bytes" for part in library.state)
    weights = "const void *weights, " if library.takes_weights else ""
    alone = "const void *weights" if library.takes_weights else ""
    return f"""/* State that calls change:
{lines}
 */
typedef struct {name}_state {name}_state;
#define {macro("STATE_BYTES")} {library.state_bytes}

/* Make a state with its initial values in `memory`, {macro("STATE_BYTES")} bytes that are aligned to {ALIGNMENT}. */
int {name}_create({weights}void *memory, size_t bytes, {name}_state **state);
/* Give it the initial values again. After a call that failed, values are undefined until this. */
int {name}_reset({name}_state *state{", " + alone if alone else ""});
/* End its use: the memory is the caller's again. */
void {name}_destroy({name}_state *state);
"""


def _entry(library: Library, entry: EntryPoint) -> str:
    name = f"{library.name}_{entry.c_name}"
    lines = [f"/* {_comment(entry.function)}:"]
    for size in entry.sizes:
        end = "" if size.greatest is None else f" to {size.greatest}"
        lines.append(f" *   {size.c_name}: a size, from {size.least}{end}")
    lines += [f" *   with {_comment(guard)}" for guard in entry.guards]
    lines += [f" *   {value.c_name}: {_described(value)}" for value in inputs_of(entry)]
    lines += [f" *   {value.c_name}: {_described(value)}, written" for value in outputs_of(entry)]
    if has_state(entry):
        lines.append(" *   state: read and written")
    lines.append(" */")
    for value in (*inputs_of(entry), *outputs_of(entry)):
        if value.scale is not None:
            lines += scale_macros(library.macro(entry.c_name, value.c_name), value.scale)
        if value.shape is None or (count := count_of(value.sizes)) is None:
            continue
        prefix = (entry.c_name, value.c_name)
        sizes = ", ".join(map(str, value.sizes))
        if value.sizes:
            lines.append(f"#define {library.macro(*prefix, 'SHAPE')} {{{sizes}}}")
        lines.append(f"#define {library.macro(*prefix, 'COUNT')} {count}")
    if entry.dimensions:
        lines += [
            "/* The bytes of the arena for these sizes; 0 for sizes that are not accepted, SIZE_MAX beyond memory. */",
            f"size_t {name}_arena_bytes({size_parameters(entry.sizes) or 'void'});",
        ]
    else:
        lines += [
            f"#define {library.macro(entry.c_name, 'ARENA_BYTES')} {max(entry.arena, 1)}",
            f"static inline size_t {name}_arena_bytes({size_parameters(entry.sizes) or 'void'}) {{",
            *(f"  (void){size.c_name};" for size in entry.sizes),
            f"  return {library.macro(entry.c_name, 'ARENA_BYTES')};\n}}",
        ]
    lines.append(f"int {name}({', '.join(parameters(library, entry))});\n")
    return "\n".join(lines)


def scale_macros(prefix: str, scale: Scale) -> list[str]:
    """Return the definitions of the scale, in float32, and of the zero point of integers."""
    return [f"#define {prefix}_SCALE {float(np.float32(scale[0]))!r}f", f"#define {prefix}_ZERO_POINT {scale[1]}"]


def _described(value: Value) -> str:
    bits = {"float16": ", its 16 bits", "bfloat16": ", its 16 bits"}.get(value.dtype, "")
    if value.dtype.startswith("float8"):
        bits = ", its 8 bits"
    if value.dtype.startswith("complex"):
        bits = ", pairs of real and imaginary parts"
    named = f" ({_comment(value.name)})" if value.c_name != value.name else ""
    shape = "" if value.shape is None else f" [{', '.join(map(str, value.sizes))}]"
    bits += "" if value.scale is None else ", standing for SCALE * (element - ZERO_POINT)"
    return f"{value.dtype}{shape}{bits}{named}{', overwritten' if value.kind == 'input' and value.written else ''}"

"""The C functions of a library: they check arguments, and call the code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fx_importer.native.abi import EntryPoint, Value
from fx_importer.native.library import (
    ALIGNMENT,
    STATUSES,
    Library,
    has_state,
    inputs_of,
    outputs_of,
    parameters,
    size_parameters,
)
from fx_importer.native.processor_check import processor_check
from fx_importer.native.sizes import HELPERS, in_c
from fx_importer.native.weight_reader import weight_reader
from fx_importer.rewrites.llvm.arena import aligned
from fx_importer.rewrites.native.status_checks import FIRST_STATUS

CODE = "_code"
ARENA_CODE = "_arena_code"
"""Suffixes of the names of the compiled functions of an entry point."""


def code_name(library: str, entry: str) -> str:
    """Return the name of the compiled function of an entry point."""
    return f"{library}_{entry}{CODE}"


def wrapper(library: Library) -> str:
    """Return the C source of the functions that the header of ``library`` declares."""
    parts = [
        f'#include "{library.name}.h"\n\n{HELPERS}',
        f"extern const unsigned char {library.name}_weight_data[];\n"
        if library.weights_bytes and not library.takes_weights
        else "",
        _status_text(library),
        processor_check(library),
        weight_reader(library) if library.takes_weights and library.weights == "file" else "",
        _state(library),
        *(_entry(library, entry) for entry in library.entries),
    ]
    return "\n".join(part for part in parts if part)


def _status_text(library: Library) -> str:
    cases = [f"  case {number}: return {json.dumps(text)};" for number, text in enumerate(STATUSES.values())]
    cases += [
        f"  case {FIRST_STATUS + number}: return {_string(message)};" for number, message in enumerate(library.messages)
    ]
    lines = "\n".join(cases)
    return (
        f"const char *{library.name}_status_text(int status) {{\n  switch (status) {{\n{lines}\n"
        '  default: return "an unknown status";\n  }\n}\n'
    )


def _string(text: str) -> str:
    """Return ``text`` as a string of C, in UTF-8."""
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '\\"?' else f"\\{byte:03o}" for byte in text.encode()
    )
    return f'"{escaped}"'


def _state(library: Library) -> str:
    if not library.state:
        return ""
    name, macro = library.name, library.macro
    argument = ", const void *weights" if library.takes_weights else ""
    weights = "const void *weights, " if library.takes_weights else ""
    copies, offset = list[str](), 0
    for part in library.state:
        address = f"state->bytes + {offset}"
        if (start := library.passed.get(part.name)) is None:
            copies.append(f"  __builtin_memset({address}, 0, {part.nbytes});")
        else:
            copies.append(f"  __builtin_memcpy({address}, {_address(library, start)}, {part.nbytes});")
        offset += aligned(part.nbytes)
    checked = "state == NULL || weights == NULL" if library.takes_weights else "state == NULL"
    return f"""struct {name}_state {{
  unsigned char bytes[{macro("STATE_BYTES")}];
}};

int {name}_reset({name}_state *state{argument}) {{
  if ({checked}) return {macro("ERROR_NULL")};
{chr(10).join(copies)}
  return {macro("OK")};
}}

int {name}_create({weights}void *memory, size_t bytes, {name}_state **state) {{
  if (state == NULL) return {macro("ERROR_NULL")};
  *state = NULL;
  if (memory == NULL || bytes < {macro("STATE_BYTES")}) return {macro("ERROR_MEMORY")};
  if ((uintptr_t)memory % {ALIGNMENT}) return {macro("ERROR_ALIGNMENT")};
  int status = {name}_reset(({name}_state *)memory{", weights" if library.takes_weights else ""});
  if (!status) *state = ({name}_state *)memory;
  return status;
}}

void {name}_destroy({name}_state *state) {{ (void)state; }}
"""


def _entry(library: Library, entry: EntryPoint) -> str:
    name, macro = f"{library.name}_{entry.c_name}", library.macro
    names = {size.name: size.c_name for size in entry.sizes}
    lines = [_declarations(library, entry), *_size_checks(library, entry, names)]
    lines.append(f"int {name}({', '.join(parameters(library, entry))}) {{")
    pointers = [value.c_name for value in (*inputs_of(entry), *outputs_of(entry)) if value.shape is not None]
    pointers += ["state"] * has_state(entry) + ["weights"] * library.takes_weights
    lines += [f"  if ({pointer} == NULL) return {macro('ERROR_NULL')};" for pointer in pointers]
    if entry.sizes:
        sizes = ", ".join(size.c_name for size in entry.sizes)
        lines.append(f"  if (!{name}_fits({sizes})) return {macro('ERROR_SIZE')};")
    needed = f"{name}_arena_bytes({', '.join(size.c_name for size in entry.sizes)})"
    if entry.dimensions or entry.arena:
        lines += [
            f"  if (arena == NULL) return {macro('ERROR_NULL')};",
            f"  if (arena_bytes < {needed}) return {macro('ERROR_ARENA')};",
            f"  if ((uintptr_t)arena % {ALIGNMENT}) return {macro('ERROR_ALIGNMENT')};",
        ]
    elif library.arrays is not None:
        lines.append("  (void)arena;\n  (void)arena_bytes;")
    if library.takes_weights:
        lines.append(f"  if ((uintptr_t)weights % {ALIGNMENT}) return {macro('ERROR_ALIGNMENT')};")
    for value in (*inputs_of(entry), *outputs_of(entry)):
        if value.shape is not None:
            lines.append(
                f"  if ((uintptr_t){value.c_name} % sizeof(*{value.c_name})) return {macro('ERROR_ALIGNMENT')};"
            )
    checks = [value for value in entry.outputs if value.kind == "check"]
    lines += [f"  bool {value.c_name} = true;" for value in checks]
    lines.append(
        f"  int status = {code_name(library.name, entry.c_name)}({', '.join(_passed(library, entry, names))});"
    )
    offset = library.first_status(entry) - FIRST_STATUS
    lines.append(f"  if (status) return status{f' + {offset}' * bool(offset)};")
    lines += [f"  if (!{value.c_name}) return {macro('ERROR_ASSUMPTION')};" for value in checks]
    return "\n".join([*lines, f"  return {macro('OK')};", "}\n"])


def _address(library: Library, offset: int) -> str:
    """Return the address of a part of the weights."""
    if library.arrays is not None:
        return library.arrays[offset]
    base = "weights" if library.takes_weights else f"{library.name}_weight_data"
    return f"(const unsigned char *){base} + {offset}"


def _declarations(library: Library, entry: EntryPoint) -> str:
    """Return the declaration of the code, in which a memref is two pointers, an offset, sizes and strides."""
    if library.arrays is not None:
        return ""
    types: list[str] = []
    for value in entry.arguments:
        by_value = value.shape is None and not value.in_memory
        types += [value.c_type] if by_value else _memref_types(value.c_type, len(value.sizes), value.dtype)
    types += _memref_types("unsigned char", 1)
    for value in entry.outputs:
        types += _memref_types(value.c_type, len(value.sizes), value.dtype)
    types += _memref_types("unsigned char", 1)
    return f"extern int32_t {code_name(library.name, entry.c_name)}({', '.join(types)});"


def _memref_types(c_type: str, rank: int, dtype: str = "") -> list[str]:
    rank -= dtype.startswith("complex")
    return [f"const {c_type} *", f"const {c_type} *", "intptr_t", *["intptr_t"] * (2 * rank)]


def _size_checks(library: Library, entry: EntryPoint, names: Mapping[str, str]) -> list[str]:
    """Return the function that checks sizes, and the one of the arena's bytes."""
    if not entry.sizes:
        return []
    name = f"{library.name}_{entry.c_name}"
    conditions: list[str] = []
    for size in entry.sizes:
        greatest = (1 << 31) - 1 if size.greatest is None else size.greatest
        conditions.append(f"{size.c_name} >= {size.least} && {size.c_name} <= INT64_C({greatest})")
    conditions += [in_c(guard, names) for guard in entry.guards]
    for value in entry.arguments:
        conditions += [
            f"{in_c(size, names)} >= 0" for size in value.shape or () if isinstance(size, str) and size not in names
        ]
    text = "\n      && ".join(dict.fromkeys(conditions))
    lines = [f"static bool {name}_fits({size_parameters(entry.sizes)}) {{\n  return {text};\n}}"]
    if entry.dimensions:
        passed = ", ".join(in_c((entry.arguments[at].shape or ())[axis], names) for at, axis in entry.dimensions)
        sizes = ", ".join(size.c_name for size in entry.sizes)
        types = ", ".join(["intptr_t"] * len(entry.dimensions))
        lines.append(
            f"extern intptr_t {name}{ARENA_CODE}({types});\n"
            * (library.arrays is None)
            + f"size_t {name}_arena_bytes({size_parameters(entry.sizes)}) {{\n"
            f"  return {name}_fits({sizes}) ? (size_t){name}{ARENA_CODE}({passed}) : 0;\n}}"
        )
    return lines


def _passed(library: Library, entry: EntryPoint, names: Mapping[str, str]) -> list[str]:
    """Return the arguments of the code."""
    base = "((const unsigned char *)weights)" if library.takes_weights else f"{library.name}_weight_data"
    if not library.weights_bytes:
        base = "NULL"
    offsets, offset = dict[str, int](), 0
    for part in library.state:
        offsets[part.name] = offset
        offset += aligned(part.nbytes)
    if library.arrays is not None:
        return _passed_to_c(library, entry, offsets, names)
    passed: list[str] = []
    for value in entry.arguments:
        if value.kind == "state":
            passed += _memref(
                value, f"(const {value.c_type} *)(const void *)(state->bytes + {offsets[value.name]})", names
            )
        elif value.kind == "weight":
            address = f"(const {value.c_type} *)(const void *)({base} + {library.passed[value.name]})"
            passed += _memref(value, address, names)
        elif value.shape is None:
            passed += _memref(value, f"&{value.c_name}", names) if value.in_memory else [value.c_name]
        else:
            passed += _memref(value, value.c_name, names)
    passed += [base, base, "0", str(library.weights_bytes), "1"]
    for value in entry.outputs:
        passed += _memref(value, f"{'&' * (value.kind == 'check')}{value.c_name}", names)
    return [*passed, "arena", "arena", "0", "(intptr_t)arena_bytes", "1"]


def _passed_to_c(
    library: Library, entry: EntryPoint, offsets: Mapping[str, int], names: Mapping[str, str]
) -> list[str]:
    """Return the arguments of code in C: a pointer, and sizes that are not static."""
    passed: list[str] = []
    for value in (*entry.arguments, *entry.outputs):
        complex_type = {"complex64": "fx_complex64", "complex128": "fx_complex128"}.get(value.dtype)
        if value.kind == "state":
            passed.append(f"({complex_type or value.c_type} *)(void *)(state->bytes + {offsets[value.name]})")
        elif value.kind == "weight":
            passed.append(_address(library, library.passed[value.name]))
        elif value.shape is None:
            passed.append(value.c_name)
        elif complex_type is not None:
            const = "" if value.written or value in entry.outputs else "const "
            passed.append(f"({const}{complex_type} *)({const}void *){value.c_name}")
        elif value.dtype.startswith(("uint", "float8")):  # signless in the code
            const = "" if value.written or value in entry.outputs else "const "
            passed.append(f"({const}{value.c_type.removeprefix('u')} *){value.c_name}")
        else:
            passed.append(f"{'&' * (value.kind == 'check')}{value.c_name}")
        passed += [in_c(size, names) for size in value.shape or () if isinstance(size, str)]
    return [*passed, "arena"]


def _memref(value: Value, address: str, names: Mapping[str, str]) -> list[str]:
    sizes = [in_c(size, names) for size in value.shape or ()]
    strides = [_product(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return [address, address, "0", *sizes, *strides]


def _product(sizes: Sequence[str]) -> str:
    return " * ".join(sizes) or "1"

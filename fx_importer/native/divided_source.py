"""C source of a divided program: a function that calls the NPU, through a function of the caller, and the processor."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fx_importer.engines.vela.c_arrays import byte_arrays
from fx_importer.engines.vela.partition import ProgramPart, program_results
from fx_importer.engines.vela.vela import vela_version
from fx_importer.errors import UsageError
from fx_importer.manifest import Argument, Function, Manifest, Result, Tree, ValueType
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.dtypes import DTYPES
from fx_importer.mlir.functions import function_named
from fx_importer.mlir.output_files import save_bytes
from fx_importer.native.abi import C_TYPES
from fx_importer.native.build import check_build
from fx_importer.native.c_source.source import write_c_source
from fx_importer.native.divided_program import DividedProgram
from fx_importer.native.header import scale_macros
from fx_importer.native.library import ALIGNMENT, Library
from fx_importer.rewrites.llvm.arena import aligned
from fx_importer.rewrites.native.buffer_offsets import Lifetime, place

if TYPE_CHECKING:
    from fx_importer.results.lowered_record import LoweredRecord

PARTS = "_parts"
"""The suffix of the library of the processor's parts, which the source contains."""
_HEADER = """/* {name}.h: a model for {accelerator} and the processor next to it, by fx_importer with
 * Vela {version}.
 *
 * On the NPU: {on_npu} operations in {streams} command stream(s). On the processor, in {name}.c:
{on_processor}
 *
 * `invoke` runs a command stream and returns 0. With the Ethos-U driver, whose handle is `driver`:
 *
 *   static int invoke(void *driver, const void *commands, size_t bytes, uint64_t *base, const size_t *sizes, int count)
 *   {{
 *     return ethosu_invoke(driver, commands, (int)bytes, base, sizes, count);
 *   }}
 *
 * Memory: `arena` is {upper}_ARENA_BYTES that the NPU reaches, `fast_scratch` {upper}_FAST_SCRATCH_BYTES of its fast
 * memory, NULL where that is 0; both are aligned to {alignment}. A call allocates nothing.
 */
#ifndef {upper}_H
#define {upper}_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_ARENA_BYTES {arena}
#define {upper}_FAST_SCRATCH_BYTES {fast}
#define {upper}_ERROR_NPU (-1)
{macros}

typedef int (*{name}_invoke)(
    void *driver, const void *commands, size_t bytes, uint64_t *base, const size_t *sizes, int count);

/* Returns 0, {upper}_ERROR_NPU if `invoke` fails, or another status. */
int {name}_run({parameters},
    void *arena, size_t arena_bytes, void *fast_scratch, {name}_invoke invoke, void *driver);
/* The text of a status: a constant, never NULL. */
const char *{name}_status_text(int status);

#ifdef __cplusplus
}}
#endif

#endif /* {upper}_H */
"""
_SOURCE = """

/* The parts on the NPU. */
#include <string.h>
#if defined(__GNUC__)
#define {upper}_ALIGNED __attribute__((aligned(16)))
#else
#define {upper}_ALIGNED
#endif

{arrays}

const char *{name}_status_text(int status) {{
  return status == {upper}_ERROR_NPU ? "the NPU failed" : {parts}_status_text(status);
}}

int {name}_run({parameters},
    void *arena, size_t arena_bytes, void *fast_scratch, {name}_invoke invoke, void *driver) {{
  unsigned char *memory = arena;
  int status;
  (void)status;
  if ({null}) return {parts_upper}_ERROR_NULL;
  if (arena_bytes < {upper}_ARENA_BYTES) return {parts_upper}_ERROR_ARENA;
  if (((uintptr_t)arena | (uintptr_t)fast_scratch) % {alignment}) return {parts_upper}_ERROR_ALIGNMENT;
{calls}
  return {parts_upper}_OK;
}}
"""


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the interface in C."""

    name: str
    c_type: str
    shape: tuple[int, ...]
    scale: tuple[float, int] | None

    def macros(self, prefix: str) -> list[str]:
        shape = ", ".join(map(str, self.shape))
        start = f"{prefix}_{self.name.upper()}"
        lines = [f"#define {start}_SHAPE {{{shape}}}"] if shape else []
        lines.append(f"#define {start}_COUNT {math.prod(self.shape)}")
        return [*lines, *(scale_macros(start, self.scale) if self.scale is not None else ())]


@dataclass(frozen=True)
class _Memory:
    """Where tensors are in a call, as expressions of C, and the arena."""

    places: Mapping[ir.Value, str]
    own: Mapping[str, int]
    """The offset of the memory of each part."""
    nbytes: int


def write_divided(
    lowered: LoweredRecord, program: DividedProgram, path: Path, scales: tuple[Sequence[Any], Sequence[Any]]
) -> None:
    """Write ``path``, a header, and the source next to it.

    Raises:
        UsageError: for a name that is none in C, and parts of the processor that C source has no form for.
    """
    prefix, *_ = check_build(path.with_suffix(""), None, "c", "embedded", None)
    name = prefix.name
    with tempfile.TemporaryDirectory(prefix="fx-importer-native-") as scratch:
        library, (source, header) = write_c_source(
            _on_processor(lowered, program), f"{name}_parts", "embedded", Path(scratch)
        )
        code = source.read_text().replace(
            f'#include "{library.name}.h"\n', f'#include "{name}.h"\n\n{header.read_text()}'
        )
    interface = _interface(lowered, scales)
    memory = _memory(lowered, program, library, interface)
    upper = name.upper()
    declared = [f"const {tensor.c_type} *{tensor.name}" for tensor in interface[0]]
    declared += [f"{tensor.c_type} *{tensor.name}" for tensor in interface[1]]
    fast = max((int(raw["scratch_fast_size"]) for raw in program.npu.values()), default=0)
    estimate = program.estimate
    words = {
        "name": name,
        "upper": upper,
        "parts": library.name,
        "parts_upper": library.name.upper(),
        "parameters": ", ".join(declared),
        "accelerator": estimate.accelerator,
        "version": vela_version(),
        "alignment": ALIGNMENT,
        "arena": max(memory.nbytes, 1),
        "fast": fast,
        "streams": len(program.npu),
        "on_npu": sum(len(part.operations) for part in program.parts if part.on_npu),
        "on_processor": "\n".join(f" *   {line.replace('*/', '* /')}" for line in estimate.on_processor),
        "macros": "\n".join(line for tensors in interface for tensor in tensors for line in tensor.macros(upper)),
        "arrays": "\n\n".join(
            byte_arrays(f"{name}_{part}", f"{upper}_ALIGNED", raw) for part, raw in program.npu.items()
        ),
        "null": " || ".join(f"!{pointer}" for pointer in _pointers(interface, fast)),
        "calls": "\n".join(_calls(lowered, program, library, memory, name, interface)),
    }
    save_bytes(_HEADER.format(**words).encode(), path)
    save_bytes((code + _SOURCE.format(**words)).encode(), path.with_suffix(".c"))


def _pointers(interface: tuple[Sequence[_Tensor], Sequence[_Tensor]], fast: int) -> list[str]:
    names = [tensor.name for tensors in interface for tensor in tensors]
    return [*names, "arena", *(["fast_scratch"] if fast else []), "invoke"]


def _interface(
    lowered: LoweredRecord, scales: tuple[Sequence[Any], Sequence[Any]]
) -> tuple[list[_Tensor], list[_Tensor]]:
    function = lowered.manifest.functions["main"]
    tensors: list[list[_Tensor]] = []
    for kind, described, known in (("input", function.arguments, scales[0]), ("output", function.results, scales[1])):
        made: list[_Tensor] = []
        for number, value in enumerate(described):
            c_type = C_TYPES[value.passed_as or value.type.dtype]
            scale = known[number] if number < len(known) else None
            made.append(_Tensor(f"{kind}_{number}", c_type, tuple(map(int, value.type.shape or ())), scale))
        tensors.append(made)
    return tensors[0], tensors[1]


def _on_processor(lowered: LoweredRecord, program: DividedProgram) -> LoweredRecord:
    """Return a record of the parts of the processor alone."""
    module = ir.Module.create(ir.Location.unknown(lowered.module.context))
    functions: dict[str, Function] = {}
    for part in program.parts:
        if part.on_npu:
            continue
        part.add_function(module, part.name)
        arguments = tuple(Argument("input", f"x{at}", _type_of(value)) for at, value in enumerate(part.inputs))
        results = tuple(Result("output", f"output.y{at}", _type_of(value)) for at, value in enumerate(part.outputs))
        functions[part.name] = Function(Tree(None, ()), Tree(None, ()), arguments, results)
    return replace(lowered, module=module, manifest=Manifest("tosa", functions, {}, {}))


def _type_of(value: ir.Value) -> ValueType:
    kind = ir.RankedTensorType(value.type)
    if (element := str(kind.element_type)) not in DTYPES:
        raise UsageError(f"the processor takes a tensor of {element} from the NPU, for which C has no type")
    return ValueType(str(DTYPES[element][0]).removeprefix("torch."), tuple(kind.shape))


def _nbytes(value: ir.Value) -> int:
    kind = ir.RankedTensorType(value.type)
    return math.prod(kind.shape) * DTYPES[str(kind.element_type)][0].itemsize


def _memory(
    lowered: LoweredRecord,
    program: DividedProgram,
    library: Library,
    interface: tuple[Sequence[_Tensor], Sequence[_Tensor]],
) -> _Memory:
    """Plan the arena: values between parts, and the memory of each part."""
    arguments = function_named(lowered.module, "main").entry_block.arguments
    places = {value: tensor.name for value, tensor in zip(arguments, interface[0], strict=True)}
    for value, tensor in zip(program_results(lowered.module), interface[1], strict=True):
        places.setdefault(value, tensor.name)
    values: dict[ir.Value, Lifetime] = {}
    for number, part in enumerate(program.parts):
        for value in part.outputs:
            if value not in places:
                last = max((at for at, other in enumerate(program.parts) if value in other.inputs), default=number)
                values[value] = Lifetime(aligned(_nbytes(value)), number, last)
    arenas = {entry.function: entry.arena for entry in library.entries}
    sizes = [
        int(program.npu[part.name]["scratch_size"]) if part.on_npu else arenas[part.name] for part in program.parts
    ]
    own = [Lifetime(aligned(max(size, 1)), number, number) for number, size in enumerate(sizes)]
    offsets, nbytes = place([*values.values(), *own])
    for value, offset in zip(values, offsets, strict=False):
        places[value] = f"(memory + {offset})"
    starts = offsets[len(values) :]
    return _Memory(places, {part.name: at for part, at in zip(program.parts, starts, strict=True)}, nbytes)


def _calls(
    lowered: LoweredRecord,
    program: DividedProgram,
    library: Library,
    memory: _Memory,
    name: str,
    interface: tuple[Sequence[_Tensor], Sequence[_Tensor]],
) -> list[str]:
    lines: list[str] = []
    entries = {entry.function: entry for entry in library.entries}
    for part in program.parts:
        start = memory.own[part.name]
        if part.on_npu:
            lines += _npu_call(part, program.npu[part.name], memory, name, start)
            continue
        entry = entries[part.name]
        passed = [f"(const void *){memory.places[value]}" for value in part.inputs]
        passed += [f"(void *){memory.places[value]}" for value in part.outputs]
        passed += [f"memory + {start}", str(max(entry.arena, 1))]
        lines.append(f"  if ((status = {library.name}_{entry.c_name}({', '.join(passed)}))) return status;")
    for value, tensor in zip(program_results(lowered.module), interface[1], strict=True):
        if memory.places[value] != tensor.name:
            lines.append(f"  memcpy({tensor.name}, {memory.places[value]}, {_nbytes(value)});")
    return lines


def _npu_call(part: ProgramPart, raw: Mapping[str, Any], memory: _Memory, name: str, start: int) -> list[str]:
    prefix = f"{name}_{part.name}"
    fast = int(raw["scratch_fast_size"])
    regions = {int(raw["scratch_fast_region"]): ("fast_scratch", str(fast))} if fast else {}
    regions[int(raw["scratch_region"])] = (f"(memory + {start})", str(int(raw["scratch_size"])))
    regions[int(raw["weight_region"])] = (f"{prefix}_weights", f"sizeof {prefix}_weights")
    rows = [regions.get(number, ("0", "0")) for number in range(max(regions) + 1)]
    copies: dict[str, list[str]] = {}
    for kind, values in (("input", part.inputs), ("output", part.outputs)):
        if len(values) != len(raw[f"{kind}_shape"]):
            raise UsageError(
                f"Vela's {part.name} has {len(raw[f'{kind}_shape'])} {kind}s, and the program {len(values)}"
            )
        copies[kind] = []
        for at, value in enumerate(values):
            count = math.prod(map(int, raw[f"{kind}_shape"][at])) * int(raw[f"{kind}_elem_size"][at])
            if count != (nbytes := _nbytes(value)):
                raise UsageError(f"Vela's {kind} {at} of {part.name} has {count} bytes, and the program's {nbytes}")
            there = f"(unsigned char *){regions[int(raw[f'{kind}_region'][at])][0]} + {int(raw[f'{kind}_offset'][at])}"
            here = memory.places[value]
            copies[kind].append(
                f"    memcpy({f'{there}, {here}' if kind == 'input' else f'{here}, {there}'}, {nbytes});"
            )
    return [
        "  {",
        f"    uint64_t base[] = {{{', '.join(f'(uint64_t)(uintptr_t){pointer}' for pointer, _ in rows)}}};",
        f"    static const size_t sizes[] = {{{', '.join(size for _, size in rows)}}};",
        *copies["input"],
        f"    if (invoke(driver, {prefix}_command_stream, sizeof {prefix}_command_stream, base, sizes, {len(rows)}))",
        f"      return {name.upper()}_ERROR_NPU;",
        *copies["output"],
        "  }",
    ]

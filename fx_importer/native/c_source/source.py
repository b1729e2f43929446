"""The C source and the header of a lowered program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fx_importer.engines.jit.weight_table import Resource, elide_weights, read_buffer
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.resources import is_resource, key_of
from fx_importer.mlir.walk import operations
from fx_importer.native.abi import EntryPoint, entry_of
from fx_importer.native.buffers import to_buffers
from fx_importer.native.c_source.arrays import array_name, array_text, as_tensor, elements_of
from fx_importer.native.c_source.buffers import Buffer, Number, row_major
from fx_importer.native.c_source.floats import LIBRARY
from fx_importer.native.c_source.functions import FunctionWriter
from fx_importer.native.c_source.helpers import definitions
from fx_importer.native.c_source.scalars import COMPLEX_TYPES, c_type
from fx_importer.native.c_source.unread_sizes import without_unread_sizes
from fx_importer.native.cblas import Cblas
from fx_importer.native.cmsis_nn import CmsisNn, layer_functions, with_layers
from fx_importer.native.header import header
from fx_importer.native.initial_values import initial_values, is_zero
from fx_importer.native.library import Library, Part
from fx_importer.native.sizes import HELPERS
from fx_importer.native.targets import NativeTarget
from fx_importer.native.wrapper import ARENA_CODE, code_name, wrapper
from fx_importer.pipelines.native import scalars_of_c
from fx_importer.pipelines.runner import run_stage
from fx_importer.rewrites.llvm.entry_point import read_fact
from fx_importer.rewrites.llvm.processor import Processor
from fx_importer.rewrites.llvm.weight_hoisting import HoistedWeight, offsets_of, weights_of
from fx_importer.rewrites.native.cblas_calls import ROUTINES
from fx_importer.rewrites.native.memory_plan import ARENA_BYTES

if TYPE_CHECKING:
    from fx_importer.results.lowered_record import LoweredRecord

C_TARGET = NativeTarget(
    "C source", "any-any", "C99", Processor(), "It compiles for any processor, and needs libm, for floats."
)
_HEAD = """/* {name}.c: written by fx-importer. The functions that {name}.h declares are at the end. */
#include "{name}.h"

{includes}
"""
_NO_CONTRACTION = """
/* Products and sums are rounded each, as in PyTorch, and not contracted. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
"""


class _Arrays:
    """The constant arrays of a source, each once."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._names: dict[tuple[str, tuple[int, ...] | None, str], str] = {}

    def add(self, key: str, order: tuple[int, ...] | None, element: str, data: torch.Tensor) -> str:
        """Return the name of the array for a weight in an ``order`` of axes."""
        if (key, order, element) not in self._names:
            name = array_name(f"{key}_transposed" if order else key, list(self._names.values()))
            self._names[key, order, element] = name
            self.texts[name] = array_text(name, element, data, key)
        return self._names[key, order, element]


def write_c_source(
    lowered: LoweredRecord,
    name: str,
    weights: str,
    folder: Path,
    cblas: Cblas | None = None,
    cmsis: CmsisNn | None = None,
) -> tuple[Library, list[Path]]:
    """Write ``NAME.c`` and ``NAME.h`` to ``folder``; return the library and the files.

    Large matmuls call ``cblas``, and layers of int8 call ``cmsis``.

    Raises:
        UsageError: for operations that have no form in C.
    """
    if weights != "embedded":
        raise UsageError(f"kind='c' has its weights as arrays: weights='{weights}' is for libraries and objects")
    base = copy_module(lowered.linked.operation)
    cmsis = cmsis and with_layers(cmsis, base, name)
    resources = elide_weights(base)
    arrays = _Arrays()
    entries: list[EntryPoint] = []
    functions: list[str] = []
    routines: dict[str, str] = {}
    hoisted: Sequence[HoistedWeight] = []
    for function in lowered.manifest.functions:
        module = to_buffers(base, function, C_TARGET, hoisted, cblas)
        routines |= read_fact(module, ROUTINES) or {}
        for stage in scalars_of_c().stages:
            run_stage(stage, module)
        hoisted = weights_of(module)
        entry = entry_of(module, function, lowered.manifest)
        entries.append(entry)
        functions.append(_functions(module, function, name, entry, arrays, hoisted, resources))
    state, others = initial_values(lowered)
    offsets: dict[str, int] = {}
    places: dict[int, str] = {}
    for number, (key, tensor) in enumerate((state | others).items()):
        if key in others or not is_zero(tensor):
            offsets[key] = number
            places[number] = arrays.add(key, None, _element_of(tensor.dtype), tensor)
    parts = tuple(Part(key, 0, tensor.nbytes) for key, tensor in state.items())
    blas = cblas and cblas.calling(routines)
    library = Library(
        name, tuple(entries), parts, offsets, 0, weights, C_TARGET, arrays=places, blas=blas, cmsis_nn=cmsis
    )
    files = [folder / f"{name}.c", folder / f"{name}.h"]
    files[1].write_text(header(library), encoding="utf-8")
    files[0].write_text(_source(library, arrays, functions), encoding="utf-8")
    return library, files


def _source(library: Library, arrays: _Arrays, functions: Sequence[str]) -> str:
    calls = _without_unused(wrapper(library)).replace("__builtin_mem", "mem")
    calls = calls.replace(f'#include "{library.name}.h"\n', "").strip("\n") + "\n"
    code = "\n".join(functions)
    helpers = definitions(code)
    used = set(re.findall(r"\bw_\w+", code + calls))
    texts = [*(arrays.texts[name] for name in arrays.texts if name in used), helpers, code, calls]
    text = "\n".join(part for part in texts if part.strip())
    floats = re.search(r"\b(float|double)\b", text) is not None
    includes = ["math.h"] if floats else []
    includes += ["string.h"] if re.search(r"\bmem(cpy|set)\b", text) else []
    head = _HEAD.format(name=library.name, includes="\n".join(f"#include <{file}>" for file in includes))
    types = COMPLEX_TYPES if "fx_complex" in text else ""
    blas = _prototypes(library.blas) if library.blas else ""
    layers = layer_functions(library.cmsis_nn, "static ") if library.cmsis_nn and library.cmsis_nn.layers else ""
    return "\n".join(part for part in (head, _NO_CONTRACTION if floats else "", types, blas, layers, text) if part)


def _prototypes(blas: Cblas) -> str:
    """Return the declarations of the functions of CBLAS, whose header need not be installed."""
    lines = [f"/* {blas.linked}. Matrices are row-major (101), and transposed (112) or not (111). */"]
    for element, routine in blas.routines.items():
        kind, size = {"f32": "float", "f64": "double"}[element], blas.integer
        lines.append(
            f"void {routine}(int layout, int trans_a, int trans_b, {size} m, {size} n, {size} k, {kind} alpha,\n"
            f"    const {kind} *a, {size} lda, const {kind} *b, {size} ldb, {kind} beta, {kind} *c, {size} ldc);"
        )
    return "\n".join((*lines, ""))


def _without_unused(calls: str) -> str:
    """Return the functions that check arguments, without those of `HELPERS` that they do not call."""
    for line in [*reversed(HELPERS.splitlines())]:
        name = re.search(r"\w+(?=\()", line)
        if name is not None and len(re.findall(rf"\b{name[0]}\b", calls)) == len(re.findall(rf"\b{name[0]}\b", line)):
            calls = calls.replace(f"{line}\n", "")
    return calls


def _functions(
    module: ir.Module,
    function: str,
    library: str,
    entry: EntryPoint,
    arrays: _Arrays,
    hoisted: Sequence[HoistedWeight],
    resources: Sequence[Resource],
) -> str:
    constants = _constants(module, arrays)
    offsets = dict(zip(offsets_of(hoisted), hoisted, strict=False))
    texts: list[str] = []
    for name, op in functions_of(module).items():
        if op.is_external:
            continue
        block_of_weights = op.arguments[len(entry.arguments)] if name == function else None

        def view(
            view_op: ir.Operation, _: Buffer, start: str, block: ir.Value | None = block_of_weights
        ) -> Buffer | None:
            if block is None or view_op.operands[0] != block:
                return None
            weight = offsets[int(start)]
            kind = ir.MemRefType(view_op.results[0].type)
            resource = resources[weight.number]
            data = as_tensor(read_buffer(weight, resource.data), str(kind.element_type), kind.shape)
            array = arrays.add(key_of(resource.value), weight.order, c_type(kind.element_type), data)
            return Buffer(array, f"const {c_type(kind.element_type)}", tuple(kind.shape), row_major(kind.shape))

        writer = FunctionWriter(constants, view)
        if name == function:
            texts.append(_entry_function(writer, op, code_name(library, entry.c_name), entry))
        elif name == ARENA_BYTES:
            texts.append(_size_function(writer, op, f"{library}_{entry.c_name}{ARENA_CODE}"))
        else:
            raise UsageError(f"C source has no form of the function '{name}': build a library or an object")
    return "\n".join(reversed(texts))


def _entry_function(writer: FunctionWriter, op: func_d.FuncOp, name: str, entry: EntryPoint) -> str:
    parameters: list[str] = []
    values = [*entry.arguments, None, *entry.outputs, None]
    blocks = iter(("", "arena"))
    names = [value.c_name for value in values if value is not None]
    for argument, value in zip(op.arguments, values, strict=True):
        if value is None:
            block = next(blocks)
            if block:
                parameters.append(f"unsigned char *{block}")
            writer.name_buffer(argument, Buffer(block, "unsigned char", (0,), (1,)))
            continue
        c_name = _parameter_name(value.c_name, names)
        if not isinstance(argument.type, ir.MemRefType):
            parameters.append(f"{c_type(argument.type)} {c_name}")
            writer.name_scalar(argument, c_name)
            continue
        kind = ir.MemRefType(argument.type)
        element = c_type(kind.element_type)
        sizes: list[Number] = []
        written = value.written or value in entry.outputs or value.kind == "state"
        parameters.append(f"{'' if written else 'const '}{element} *{c_name}")
        for axis in range(kind.rank):
            if kind.is_dynamic_dim(axis):
                sizes.append(f"{c_name}_d{axis}")
                parameters.append(f"ptrdiff_t {c_name}_d{axis}")
            else:
                sizes.append(kind.shape[axis])
        qualified = element if written else f"const {element}"
        writer.name_buffer(argument, Buffer(c_name, qualified, tuple(sizes), row_major(sizes)))
    writer.write(op.entry_block)
    body = _body(parameters, writer.lines)
    return f"static int32_t {name}({', '.join(parameters)}) {{\n{body}\n}}\n"


_OWN_NAMES = re.compile(r"(?:[tbvi]|next)\d+(?:_[ds]\d+)?|(?:w|fx)_\w*")


def _parameter_name(name: str, names: list[str]) -> str:
    """Return a name for a parameter, other than those of loops, variables, arrays and functions of libm."""
    if len(name) > 1 and not _OWN_NAMES.fullmatch(name) and not {name, name.removesuffix("f")} & LIBRARY:
        return name
    changed = f"{name}_in"
    while changed in names:
        changed += "_"
    names.append(changed)
    return changed


def _size_function(writer: FunctionWriter, op: func_d.FuncOp, name: str) -> str:
    parameters: list[str] = []
    for number, argument in enumerate(op.arguments):
        writer.name_scalar(argument, f"d{number}")
        parameters.append(f"ptrdiff_t d{number}")
    writer.write(op.entry_block)
    body = _body(parameters, writer.lines)
    return f"static ptrdiff_t {name}({', '.join(parameters)}) {{\n{body}\n}}\n"


def _body(parameters: Sequence[str], lines: Sequence[str]) -> str:
    """Return the lines of a function, and first those that use what is not used otherwise."""
    lines = without_unread_sizes(lines)
    code = "\n".join(lines)
    names = [parameter.split()[-1].lstrip("*") for parameter in parameters]
    return "\n".join([*(f"  (void){name};" for name in names if not re.search(rf"\b{name}\b", code)), *lines])


def _constants(module: ir.Module, arrays: _Arrays) -> Mapping[str, Buffer]:
    """Return the buffers of small constants by symbol."""
    buffers: dict[str, Buffer] = {}
    for op in operations(module.operation, ("memref.global",)):
        symbol = ir.StringAttr(op.attributes["sym_name"]).value
        kind = ir.MemRefType(ir.TypeAttr(op.attributes["type"]).value)
        value = op.attributes["initial_value"]
        element = c_type(kind.element_type)
        key = key_of(value) if is_resource(value) else str(value)
        data = elements_of(value)
        array = arrays.add(key if len(key) < 60 else symbol.strip("_"), None, element, data)
        buffers[symbol] = Buffer(array, f"const {element}", tuple(kind.shape), row_major(kind.shape))
    return buffers


def _element_of(dtype: torch.dtype) -> str:
    names = {
        torch.float32: "float",
        torch.float64: "double",
        torch.bool: "bool",
        torch.float16: "uint16_t",
        torch.bfloat16: "uint16_t",
        torch.complex64: "fx_complex64",
        torch.complex128: "fx_complex128",
    }
    return names.get(dtype, f"int{dtype.itemsize * 8}_t")

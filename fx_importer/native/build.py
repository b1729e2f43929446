"""Builds a lowered module as native code."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import torch

from fx_importer.engines.function_extraction import check_one_device
from fx_importer.engines.jit.weight_table import Resource, elide_weights
from fx_importer.errors import RandomNumbersWarning, UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.dtypes import DTYPES
from fx_importer.mlir.functions import dialects_of, functions_of
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.resources import key_of
from fx_importer.native.abi import EntryPoint, entry_of, identifier
from fx_importer.native.buffers import to_buffers
from fx_importer.native.c_source.source import write_c_source
from fx_importer.native.cblas import Cblas, find_cblas
from fx_importer.native.cmsis_nn import CmsisNn, compile_layers, find_cmsis_nn, with_layers
from fx_importer.native.compilers import find_compiler
from fx_importer.native.header import header
from fx_importer.native.initial_values import initial_values, is_zero
from fx_importer.native.ir_text import llvm_ir
from fx_importer.native.library import Library, Part
from fx_importer.native.linking import link, shared_suffix
from fx_importer.native.targets import PRESETS, NativeTarget, target_named
from fx_importer.native.toolchain import compile_file
from fx_importer.native.weight_files import MappedBlock, end_of, write_file
from fx_importer.native.wrapper import ARENA_CODE, code_name, wrapper
from fx_importer.pipelines.native import machine_code
from fx_importer.pipelines.runner import run_stage
from fx_importer.rewrites.llvm.arena import aligned
from fx_importer.rewrites.llvm.entry_point import read_fact
from fx_importer.rewrites.llvm.weight_hoisting import HoistedWeight, file_aligned, offsets_of, weights_of
from fx_importer.rewrites.native.cblas_calls import ROUTINES
from fx_importer.rewrites.native.memory_plan import ARENA_BYTES
from fx_importer.weights.weight_files import Mapped

if TYPE_CHECKING:
    from fx_importer.results.lowered_record import LoweredRecord

SOURCE = "c"
KINDS = ("shared", "static", "object", "executable", SOURCE)
WEIGHTS = ("embedded", "file", "pointer")
THREADS = "openmp"
MOST_EMBEDDED = 2**31 - 2**26


@dataclass(frozen=True)
class Built:
    """The files of a build."""

    files: tuple[Path, ...]
    """The library or object, the header, and the file of weights if there is one."""
    library: Library

    def __str__(self) -> str:
        return ", ".join(f"{path} ({path.stat().st_size:,} bytes)" for path in self.files)


def build_native(
    lowered: LoweredRecord,
    path: str | os.PathLike[str],
    target: str | None,
    kind: str,
    weights: str,
    threads: str | None = None,
    blas: str | None = None,
    mapped: Sequence[Mapped] | None = None,
    constants: Mapping[str, str] = MappingProxyType({}),
    cmsis_nn: str | os.PathLike[str] | None = None,
) -> Built:
    """Build ``lowered`` as the files that begin with ``path``; see `Lowered.build`.

    With ``weights="file"``, weights that alias ``mapped``, files of the caller, stay in them. The header has
    ``constants`` as macros.
    """
    prefix, chosen, cblas = check_build(path, target, kind, weights, threads, blas)
    cmsis = None if cmsis_nn is None else find_cmsis_nn(cmsis_nn)
    _check_module(lowered)
    if "ml_program" in dialects_of(lowered.module):
        warnings.warn(
            "random numbers begin with the same seed in each call of native code, and are the same ones: pass them as "
            "inputs of the model",
            RandomNumbersWarning,
            stacklevel=3,
        )
    if kind == SOURCE:
        return _build_source(lowered, prefix, weights, cblas, cmsis)
    find_compiler().check(chosen)
    with tempfile.TemporaryDirectory(prefix="fx-importer-native-") as scratch:
        folder = Path(scratch)
        library, sources = _write_sources(
            lowered, prefix.name, chosen, cblas, weights, folder, mapped, constants, cmsis
        )
        objects = [] if library.cmsis_nn is None else compile_layers(library.cmsis_nn, prefix.name, chosen, folder)
        for source in sources:
            compile_file(chosen, source, made := source.with_suffix(".o"))
            objects.append(made)
        made = [link(library, kind, objects, folder), folder / f"{library.name}.h"]
        if (file := folder / f"{library.name}.safetensors").exists():
            made.append(file)
        return Built(_moved(made, prefix.parent), library)


def _build_source(
    lowered: LoweredRecord, prefix: Path, weights: str, cblas: Cblas | None, cmsis: CmsisNn | None
) -> Built:
    """Write C source, which needs no toolchain."""
    with tempfile.TemporaryDirectory(prefix="fx-importer-native-") as scratch:
        library, files = write_c_source(lowered, prefix.name, weights, Path(scratch), cblas, cmsis)
        return Built(_moved(files, prefix.parent), library)


def _moved(made: Sequence[Path], folder: Path) -> tuple[Path, ...]:
    """Move files that are complete to ``folder``: all of them, or none."""
    files = tuple(folder / path.name for path in made)
    if directory := next((path for path in files if path.is_dir()), None):
        raise UsageError(f"cannot write '{directory}': it is a directory")
    temporaries = [folder / f".{path.name}.{os.getpid()}.{threading.get_ident()}" for path in made]
    try:
        for path, temporary in zip(made, temporaries, strict=True):
            shutil.move(path, temporary)
        for temporary, final in zip(temporaries, files, strict=True):
            temporary.replace(final)
    except OSError as error:
        raise UsageError(f"cannot write to '{folder}': {error}") from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)
    return files


_HEADERS = (
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic "
    "stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype fcntl unistd"
)
"""The headers of the C library."""


def check_build(
    path: str | os.PathLike[str],
    target: str | None,
    kind: str,
    weights: str,
    threads: str | None,
    blas: str | None = None,
) -> tuple[Path, NativeTarget, Cblas | None]:
    """Return the prefix of files, the target and the BLAS. Raises `UsageError` for what cannot be built, at once."""
    prefix, chosen = Path(path), target_named(target)
    if kind not in KINDS:
        raise UsageError(f"no kind '{kind}' of native code: accepted are {', '.join(KINDS)}")
    if kind == SOURCE and target is not None:
        raise UsageError(f"kind='c' is source for any processor, and target='{target}' is one: leave the target out")
    if weights not in WEIGHTS:
        raise UsageError(f"weights='{weights}' is not known: accepted are {', '.join(WEIGHTS)}")
    if prefix.name.lower() in _HEADERS.split():
        raise UsageError(
            f"the header '{prefix.name}.h' would hide the one of the C library: take another name, such as "
            f"'{prefix.name}_model'"
        )
    if not re.fullmatch(r"[A-Za-z]\w*", prefix.name, re.ASCII):
        raise UsageError(
            f"'{prefix.name}' is not a name in C: functions begin with it. Accepted are letters, digits and '_', "
            f"without a suffix, such as '{identifier(prefix.name)}'"
        )
    if not prefix.parent.is_dir() or not os.access(prefix.parent, os.W_OK):
        raise UsageError(f"cannot write to '{prefix.parent}': there is no such directory, or it is not writable")
    if kind == "shared" and shared_suffix(chosen) is None:
        if chosen.name not in PRESETS:
            raise UsageError(f"shared libraries are not built for '{chosen.name}'")
        raise UsageError(f"{chosen.name} has no shared libraries: build kind='static' or kind='object'")
    if kind == "executable" and chosen.is_bare:
        raise UsageError(f"{chosen.name} has no operating system that runs programs: build kind='static'")
    if weights == "file" and chosen.system not in ("linux", "macos", "freebsd"):
        raise UsageError(f"{chosen.name} does not map files: build with weights='embedded' or weights='pointer'")
    cblas = None if blas is None else find_cblas(blas, chosen, kind)
    return prefix, chosen if threads is None else _with_threads(chosen, kind, threads), cblas


def _with_threads(target: NativeTarget, kind: str, threads: str) -> NativeTarget:
    if threads != THREADS:
        raise UsageError(f"threads='{threads}' is not known: accepted is '{THREADS}', or None for one thread")
    if kind not in ("shared", "static", "object"):
        raise UsageError(
            f"kind='{kind}' has one thread: build kind='shared', 'static' or 'object' with threads='{threads}'"
        )
    if target.is_bare or target.processor.index_bits != 64 or (kind == "shared" and target.system != "linux"):
        raise UsageError(f"{target.name} has no OpenMP library that kind='{kind}' is linked with: leave threads out")
    return replace(target, processor=replace(target.processor, threads=True))


def _check_module(lowered: LoweredRecord) -> None:
    """Raise `UsageError` for a module that only a process with PyTorch runs."""
    if stubs := lowered.manifest.operator_stubs:
        names = ", ".join(sorted({stub.operator for stub in stubs.values()}))
        raise UsageError(f"native code has no PyTorch, which runs {names}: lower without unsupported='outline'")
    if "torch" in dialects_of(lowered.module):
        raise UsageError(
            "native code is built from 'linalg-on-tensors', 'tosa' or 'stablehlo', and this module has operations of "
            "the dialect torch: lower with another output type"
        )
    check_one_device(lowered.module)


def _write_sources(
    lowered: LoweredRecord,
    name: str,
    target: NativeTarget,
    cblas: Cblas | None,
    weights: str,
    folder: Path,
    mapped: Sequence[Mapped] | None,
    constants: Mapping[str, str],
    cmsis: CmsisNn | None,
) -> tuple[Library, list[Path]]:
    """Write the header, the block of weights and the sources to ``folder``; return the sources."""
    base = copy_module(lowered.linked.operation)
    cmsis = cmsis and with_layers(cmsis, base, name)
    before = MappedBlock(mapped or ())
    resources = elide_weights(base, lambda data: before.place_of(data) is not None)
    hoisted, files = before.weights(resources), before.files
    entries: list[EntryPoint] = []
    sources: list[Path] = []
    routines: dict[str, str] = {}
    for function in lowered.manifest.functions:
        module = to_buffers(base, function, target, hoisted, cblas)
        hoisted = weights_of(module)
        routines |= read_fact(module, ROUTINES) or {}
        entry = entry_of(module, function, lowered.manifest)
        entries.append(entry)
        sources.append(source := folder / f"{name}_{entry.c_name}.ll")
        source.write_text(_machine_code(module, function, name, entry, target), encoding="utf-8")
    if weights == "embedded" and (needed := offsets_of(hoisted)[-1]) > MOST_EMBEDDED:
        raise UsageError(
            f"the weights take {needed:,} bytes, and code reaches {MOST_EMBEDDED:,} of its library: build with "
            "weights='file' or weights='pointer'"
        )
    state, others = initial_values(lowered)
    passed = {key: tensor for key, tensor in (state | others).items() if key in others or not is_zero(tensor)}
    parts, places = _write_block(passed, resources, hoisted, block := folder / "weights.bin")
    size = block.stat().st_size
    if weights == "file" and size:
        start = file_aligned(end_of(files))
        files.append(write_file(folder / f"{name}.safetensors", parts, block, start))
    library = Library(
        name,
        tuple(entries),
        tuple(Part(key, 0, tensor.nbytes) for key, tensor in state.items()),
        places,
        end_of(files) if files else size,
        weights,
        target,
        tuple(files),
        mapped is not None,
        constants=constants,
        blas=cblas and cblas.calling(routines),
        cmsis_nn=cmsis,
    )
    (folder / f"{name}.h").write_text(header(library), encoding="utf-8")
    (source := folder / f"{name}.c").write_text(wrapper(library), encoding="utf-8")
    sources.append(source)
    if size and weights == "embedded":
        sources.append(_embed(library, folder))
    return library, sources


def _machine_code(module: ir.Module, function: str, library: str, entry: EntryPoint, target: NativeTarget) -> str:
    """Return the LLVM IR of a module in loops over memrefs, with names that no other library has."""
    names = {function: code_name(library, entry.c_name), ARENA_BYTES: f"{library}_{entry.c_name}{ARENA_CODE}"}
    for old, op in functions_of(module).items():
        if old in names:
            op.attributes["sym_name"] = ir.StringAttr.get(names[old], module.context)
    for stage in machine_code(target.processor).stages:
        run_stage(stage, module)
    return llvm_ir(module)


_FILE_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.bool: "BOOL",
}


def _write_block(
    tensors: Mapping[str, torch.Tensor], resources: Sequence[Resource], hoisted: Sequence[HoistedWeight], path: Path
) -> tuple[list[Part], dict[str, int]]:
    """Write the weights that are in no file of the caller, and ``tensors``; return all parts, and where these begin.

    The file begins where the mapped files end.
    """
    *offsets, end = offsets_of(hoisted)
    start = file_aligned(
        max((buffer.place + buffer.nbytes for buffer in hoisted if buffer.place is not None), default=0)
    )
    parts: list[Part] = []
    places: dict[str, int] = {}
    with path.open("wb") as file:
        for weight, offset in zip(hoisted, offsets, strict=True):
            if weight.place is not None:
                continue
            resource = resources[weight.number]
            file.seek(offset - start)
            for piece in _pieces(weight, resource.data):
                file.write(np.ascontiguousarray(piece).data)
            dtype = DTYPES[str(ir.RankedTensorType(resource.value.type).element_type)][0]
            shape = weight.shape if weight.order is None else tuple(weight.shape[axis] for axis in weight.order)
            name = f"{key_of(resource.value)}{'' if weight.order is None else f'.transposed_{weight.number}'}"
            parts.append(_part(name, offset - start, weight.nbytes, dtype, shape))
        for name, tensor in tensors.items():
            file.seek(end - start)
            file.write(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
            parts.append(_part(name, end - start, tensor.nbytes, tensor.dtype, tuple(tensor.shape)))
            places[name] = end
            end = aligned(end + tensor.nbytes)
        file.truncate(end - start)
    return parts, places


def _pieces(weight: HoistedWeight, data: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the elements of ``weight`` in the order that code reads, in parts that fit into memory."""
    if weight.order is None:
        yield data
        return
    elements = data.view(np.dtype((np.void, weight.itemsize))).reshape(weight.shape).transpose(weight.order)
    rows = max(_PIECE * len(elements) // weight.nbytes, 1)
    for first in range(0, len(elements), rows):
        yield elements[first : first + rows]


_PIECE = 1 << 25


def _part(name: str, offset: int, nbytes: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Part:
    if dtype not in _FILE_DTYPES:
        return Part(name, offset, nbytes, "U8", (nbytes,))
    return Part(name, offset, nbytes, _FILE_DTYPES[dtype], shape)


def _embed(library: Library, folder: Path) -> Path:
    """Write the source that has the block of weights as a section; return it."""
    symbol = f"{library.name}_weight_data"
    elf = library.target.system in ("linux", "freestanding", "none", "freebsd")
    if elf and not library.target.architecture.startswith("wasm"):
        source = folder / "weights.S"
        text = f"""
    .section .rodata.{symbol},"a",%progbits
    .balign 64
    .globl {symbol}
    .hidden {symbol}
    .type {symbol},%object
    .size {symbol},{library.weights_bytes}
{symbol}:
    .incbin "weights.bin"
    .section .note.GNU-stack,"",%progbits
"""
    else:
        source = folder / "weights.c"
        text = f'_Alignas(64) const unsigned char {symbol}[] = {{\n#embed "weights.bin"\n}};\n'
    source.write_text(text, encoding="utf-8")
    return source

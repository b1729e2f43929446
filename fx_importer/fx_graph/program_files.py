"""Reading of exported programs from ``.pt2`` files, without running code that a file names."""

from __future__ import annotations

import io
import logging
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from fx_importer.errors import UsageError, first_line
from fx_importer.frontend.torch_patches import (
    ARCHIVE_DEVICES,
    EXPORT_LOG,
    SAVED_DEVICES,
    SAVED_OBJECTS,
    SAVED_STORAGES,
    SIZE_TEXT,
    patched,
    warnings_filtered,
)
from fx_importer.fx_graph.operator_libraries import import_libraries
from fx_importer.fx_graph.program_checks import Unsafe
from fx_importer.fx_graph.program_schema import check_payload, check_program
from fx_importer.json_text import parse_json
from fx_importer.symbolic.size_parser import parse_size

_ENTRY = re.compile(
    r"(\.data/)?(version|serialization_id)|\.format_version|\.storage_alignment|archive_(format|version)|byteorder"
    r"|models/model\.json|data/sample_inputs/model\.pt|extra/.*"
    r"|data/(weights|constants)/(model_(weights|constants)_config\.json|(weight|tensor)_\d+)"
)
"""The entries of plain data. Others hold libraries (``data/aotinductor``) or pickled objects."""
_MAX_SECONDS = 60
"""CPU time for the sizes of a program; 40,000 sizes take 10 s."""


def read_program(path: Path, *, trust: bool = False) -> torch.export.ExportedProgram:
    """Return the program that torch.export.save wrote to ``path``, on the CPU, whatever device it was saved on.

    torch.export.load unpickles objects, evaluates the text of sizes, and imports classes that the file names. Unless
    the user has ``trust`` in it, a file that needs any of this is refused.

    Raises:
        UsageError: if it is refused, damaged, or not such a file.
    """
    if not path.is_file():
        raise UsageError(f"there is no file '{path}'")
    names = check_archive(path)
    with zipfile.ZipFile(path) as archive:
        for name in names:
            if name.endswith("/models/model.json"):
                import_libraries(archive.read(name))
    sizes = None
    if not trust:
        sizes = _Sizes()
        try:
            _check_entries(path, names)
        except Unsafe as reason:
            raise _refusal(path, reason) from None
    # torch 2.12 warns of its own reading of buffers, which nothing writes to.
    unwritable = warnings_filtered("ignore", "The given buffer is not writable", UserWarning)
    with unwritable, _collecting_warnings() as logged, _reading_to_cpu(), _reading_plain_data(sizes):
        try:
            return torch.export.load(path)
        except Exception as error:  # of any type, for a file that another torch wrote or that is damaged
            if sizes is not None and sizes.refused is not None:
                raise _refusal(path, sizes.refused) from None
            reason = first_line(logged[0] if logged else error)
            raise UsageError(
                f"torch.export.load of torch {torch.__version__} cannot read '{path}': {reason}"
            ) from error


def _refusal(path: Path, reason: Unsafe) -> UsageError:
    return UsageError(
        f"'{path}' may run code when it is loaded: {reason}. If you trust who made it: --trust, or trust=True"
    )


class _Sizes:
    """The reader of the sizes of one program: `parse_size`, for a bounded time."""

    def __init__(self) -> None:
        self.refused: Unsafe | None = None
        self._seconds = 0.0

    def read(self, text: str, symbols: Mapping[str, sympy.Basic]) -> sympy.Basic:
        start = time.thread_time()
        try:
            if self._seconds > _MAX_SECONDS:
                raise ValueError(f"the sizes of the program take more than {_MAX_SECONDS} s to compute")
            return parse_size(text, symbols)
        except ValueError as error:
            self.refused = self.refused or Unsafe(f"{text[:80]!r} is more than the arithmetic of a size: {error}")
            raise self.refused from None
        finally:
            self._seconds += time.thread_time() - start


@contextmanager
def _reading_plain_data(sizes: _Sizes | None) -> Iterator[None]:
    """Replace the parts of torch.export.load that evaluate text, or unpickle any object, by readers of plain data."""
    if sizes is None:
        yield
        return
    analyze = SIZE_TEXT.resolved().read()

    def parse(deserializer: Any, text: Any, hint: Any = None) -> sympy.Basic:
        if isinstance(text, str):
            text = sizes.read(text, deserializer.symbol_name_to_symbol)
        return analyze(deserializer, text, hint)

    def unpickled(saved: Any) -> Any:
        return saved if isinstance(saved, dict | tuple) else read_objects(bytes(saved)) if saved else {}

    with patched({SIZE_TEXT: parse, SAVED_OBJECTS: unpickled}):
        yield


@contextmanager
def _reading_to_cpu() -> Iterator[None]:
    """Make torch.export.load read devices as the CPU. The meta device stays."""
    restore = SAVED_STORAGES.resolved().read()

    def device(saved: Any) -> torch.device:
        return torch.device("meta" if saved.type == "meta" else "cpu")

    def storage(loaded: Any, location: str) -> Any:
        return restore(loaded, "meta" if location == "meta" else "cpu")

    to_cpu = {SAVED_DEVICES: device, ARCHIVE_DEVICES: device, SAVED_STORAGES: storage}
    with patched({patch: value for patch, value in to_cpu.items() if patch.exists()}):
        yield


def _check_entries(path: Path, names: list[str]) -> None:
    """Raise `Unsafe` for entries that torch would unpickle, evaluate or import."""
    within = {name.partition("/")[0] for name in names}
    if len(within) != 1 or len({name.casefold() for name in names}) != len(names):
        raise Unsafe("its entries are not those of one folder, each once")
    try:
        reader = torch._C.PyTorchFileReader(str(path))  # torch.export.load uses it too, and may see other entries
        for name in {*reader.get_all_records(), *(name.partition("/")[2] for name in names)}:
            if not _ENTRY.fullmatch(name):
                raise Unsafe(f"it holds '{name}', which is not plain data")
        check_program(parse_json(reader.get_record("models/model.json")))
        for kind in ("weights", "constants"):
            _check_tensors(reader, parse_json(reader.get_record(f"data/{kind}/model_{kind}_config.json")), kind)
        if example_inputs := reader.get_record("data/sample_inputs/model.pt"):
            _check_example_inputs(example_inputs)
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"'{path}' is not what torch.export.save writes: {first_line(error)}") from None


def _check_tensors(reader: Any, listed: Any, kind: str) -> None:
    """Check the list of ``kind``, and that the bytes of each tensor are there."""
    config = listed.get("config") if isinstance(listed, dict) else None
    for name, entry in config.items() if isinstance(config, dict) else ():
        if not isinstance(entry, dict) or entry.get("use_pickle") is not False:
            raise Unsafe(f"'{name}' is pickled, as tensor subclasses and script objects are")
    check_payload(listed)
    for name, entry in listed["config"].items():
        meta = entry["tensor_meta"]
        if meta is None:
            raise ValueError(f"'{name}' has no type")
        numbers = [*meta["sizes"], *meta["strides"], meta["storage_offset"]]
        if not all("as_int" in number and number["as_int"] >= 0 for number in numbers):
            raise ValueError(f"'{name}' has sizes that are no numbers")
        stored = reader.get_record_size(f"data/{kind}/{entry['path_name']}")
        sizes, strides = ([number["as_int"] for number in meta[field]] for field in ("sizes", "strides"))
        last = meta["storage_offset"]["as_int"] + sum(
            (size - 1) * stride for size, stride in zip(sizes, strides, strict=True)
        )
        if 0 not in sizes and last >= stored:  # elements have a byte at least
            raise ValueError(f"'{name}' is not within its {stored} bytes")


def _check_example_inputs(saved: bytes) -> None:
    try:
        read_objects(saved)
    except Exception as error:  # of any type; torch.export.load would then unpickle any object
        raise Unsafe(f"its example inputs are not tensors, numbers and containers ({first_line(error)})") from None


@contextmanager
def _collecting_warnings() -> Iterator[list[BaseException]]:
    """Collect the exceptions that torch.export.load logs, instead of printing their tracebacks to standard error."""
    logged: list[BaseException] = []

    def collect(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            logged.append(record.exc_info[1])
        return False

    loggers = [logging.getLogger(name) for name in (torch.export.__name__, "torch._export.serde.serialize")]
    with patched({EXPORT_LOG.on(logger): [*logger.filters, collect] for logger in loggers}):
        yield logged


_MAX_EXPANDED = 256 * 2**20
"""Bytes that entries may have in all where the archive has fewer, as a compressed one has."""


def check_archive(path: Path) -> list[str]:
    """Return the entries of an exported program, after a check of their checksums, which torch leaves out, and sizes.

    Raises:
        UsageError: if the file is damaged, or expands to far more than it has.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_expansion(archive, path.stat().st_size)
            names = archive.namelist()
            if names and min(entry.header_offset for entry in archive.infolist()):
                raise ValueError("something is before its entries, which other readers take for the archive")
            damaged = archive.testzip()
    except Exception as error:  # zipfile raises errors of many types for damaged archives
        detail = "" if isinstance(error, zipfile.BadZipFile) else f" ({first_line(error)})"
        raise UsageError(
            f"'{path}' is not what torch.export.save writes: it is not a whole zip archive{detail}"
        ) from None
    if damaged is not None:
        raise UsageError(f"'{path}' is damaged: the checksum of '{damaged}' differs")
    if not any(name.endswith("/models/model.json") for name in names):
        raise UsageError(
            f"'{path}' is not what torch.export.save writes: it is a zip archive without an exported program "
            f"(torch.save and torch.jit.save write such)"
        )
    return names


def _check_expansion(archive: zipfile.ZipFile, size: int) -> None:
    expanded = sum(entry.file_size for entry in archive.infolist())
    if expanded > max(size, _MAX_EXPANDED):
        raise ValueError(f"its {size:,} bytes would expand to {expanded:,}")


def read_objects(saved: bytes | Path) -> Any:
    """Return what ``torch.save`` wrote: tensors, on the CPU, numbers and containers.

    Raises an exception of any type for other objects, for a damaged archive, and for tensors larger than it.
    """
    size = saved.stat().st_size if isinstance(saved, Path) else len(saved)
    file = saved if isinstance(saved, Path) else io.BytesIO(saved)
    with zipfile.ZipFile(file) as archive:
        _check_expansion(archive, size)
    opened = file if isinstance(file, Path) else io.BytesIO(file.getvalue())
    objects = torch.load(opened, map_location="cpu", weights_only=True)
    for tensor in pytree.tree_leaves(objects):
        if not isinstance(tensor, torch.Tensor) or tensor.is_meta:
            continue
        if tensor.is_nested:
            raise ValueError("a nested tensor is not read from a file")
        if tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > max(size, _MAX_EXPANDED):
            raise ValueError(f"a tensor of {tensor.untyped_storage().nbytes():,} bytes is larger than its file")
    return objects

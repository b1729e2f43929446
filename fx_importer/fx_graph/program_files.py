"""Reading of exported programs from ``.pt2`` files, without running code that a file names."""

from __future__ import annotations

import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fx_importer.errors import UsageError, first_line
from fx_importer.frontend.torch_patches import EXPORT_LOG, patched, warnings_filtered
from fx_importer.fx_graph.operator_libraries import import_libraries
from fx_importer.fx_graph.program_checks import Unsafe, check_model

_ENTRY = re.compile(
    r"(\.data/)?(version|serialization_id)|\.format_version|\.storage_alignment|archive_(format|version)|byteorder"
    r"|models/model\.json|data/sample_inputs/model\.pt|extra/.*"
    r"|data/(weights|constants)/(model_(weights|constants)_config\.json|(weight|tensor)_\d+)"
)
"""The entries of plain data. Others hold libraries (``data/aotinductor``) or pickled objects."""


def read_program(path: Path, *, trust: bool = False) -> torch.export.ExportedProgram:
    """Return the program that torch.export.save wrote to ``path``.

    torch.export.load unpickles objects, evaluates the text of sizes, and imports classes that the file names. Unless
    the user has ``trust`` in it, a file that needs any of this is refused.

    Raises:
        UsageError: if it is refused, damaged, or not such a file.
    """
    if not path.is_file():
        raise UsageError(f"there is no file '{path}'")
    try:
        names = _checked_archive(path)
        with zipfile.ZipFile(path) as archive:
            for name in names:
                if name.endswith("/models/model.json"):
                    import_libraries(archive.read(name))
        if not trust:
            _check_entries(path, names)
    except Unsafe as reason:
        raise UsageError(
            f"'{path}' may run code when it is loaded: {reason}. If you trust who made it: --trust, or trust=True"
        ) from None
    # torch 2.12 warns of its own reading of buffers, which nothing writes to.
    unwritable = warnings_filtered("ignore", "The given buffer is not writable", UserWarning)
    with unwritable, _collecting_warnings() as logged:
        try:
            return torch.export.load(path)
        except Exception as error:  # of any type, for a file that another torch wrote or that is damaged
            reason = first_line(logged[0] if logged else error)
            raise UsageError(
                f"torch.export.load of torch {torch.__version__} cannot read '{path}': {reason}"
            ) from error


def _checked_archive(path: Path) -> list[str]:
    """Return the names of the entries, whose checksums torch does not check."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
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


def _check_entries(path: Path, names: list[str]) -> None:
    """Raise `Unsafe` for entries that torch would unpickle, evaluate or import."""
    within = {name.partition("/")[0] for name in names}
    if len(within) != 1 or len({name.casefold() for name in names}) != len(names):
        raise Unsafe("its entries are not those of one folder, each once")
    for name in names:
        if not _ENTRY.fullmatch(name.partition("/")[2]):
            raise Unsafe(f"it holds '{name}', which is no plain data")
    try:
        reader = torch._C.PyTorchFileReader(str(path))  # torch.export.load uses it too
        check_model(_json(reader, "models/model.json"))
        for kind in ("weights", "constants"):
            _check_tensors(_json(reader, f"data/{kind}/model_{kind}_config.json"), kind)
        _check_unpickles(reader.get_record("data/sample_inputs/model.pt"))
    except (RuntimeError, ValueError, RecursionError) as error:
        raise UsageError(f"'{path}' is not what torch.export.save writes: {first_line(error)}") from None


def _json(reader: Any, name: str) -> Any:
    return json.loads(reader.get_record(name))


def _check_tensors(listed: Any, kind: str) -> None:
    config = listed.get("config") if isinstance(listed, dict) else None
    if not isinstance(config, dict):
        raise ValueError(f"the list of its {kind} cannot be read")
    for name, each in config.items():
        if not isinstance(each, dict) or each.get("use_pickle") is not False:
            raise Unsafe(f"'{name}' is pickled, as tensor subclasses and script objects are")
        if not re.fullmatch(r"(weight|tensor)_\d+", str(each.get("path_name"))):
            raise Unsafe(f"'{name}' is no tensor")
    check_model(listed)


def _check_unpickles(example_inputs: bytes) -> None:
    if not example_inputs:
        return
    try:
        torch.load(io.BytesIO(example_inputs), weights_only=True)
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

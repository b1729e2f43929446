"""The call in a model's code that torch's tracing is in: its line, and the function of torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

from torch._guards import TracingContext

from fx_importer.diagnostics.mlir_diagnostics import is_torch
from fx_importer.diagnostics.source_lines import source_line

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class UserCall:
    """A call in the code of a model, outside of torch and of this package."""

    file: str = ""
    line: int = 0
    function: str = ""
    """The name of the function of torch that it calls, ``linspace``; empty if unknown."""

    @property
    def place(self) -> str:
        """The place and the line, as errors show them; empty if unknown."""
        source = source_line(self.file, self.line)
        return f"at {self.file}:{self.line}" + (f": {source}" if source else "") if self.file else ""


def call_of_user(frame: FrameType | None) -> UserCall:
    """Return the call that ``frame`` is in: the innermost one of a model's code, or TorchDynamo's record of it."""
    function = ""
    while frame is not None and not _is_users(frame):
        function = _function_in(frame) or function
        if "torch/_dynamo/" in frame.f_code.co_filename and (stack := TracingContext.extract_stack()):
            return UserCall(stack[-1].filename, stack[-1].lineno or 0, function)
        frame = frame.f_back
    return UserCall() if frame is None else UserCall(frame.f_code.co_filename, frame.f_lineno, function)


def frame_of_user(frame: FrameType | None, asks: tuple[str, ...]) -> tuple[FrameType | None, FrameType | None]:
    """Return the innermost frame of a model's code around ``frame``, and the innermost one that is not in ``asks``."""
    asker = None
    while frame is not None and not _is_users(frame):
        file = frame.f_code.co_filename
        if asker is None and not (file.endswith(asks) or file.startswith((_PACKAGE, "<")) or "/contextlib.py" in file):
            asker = frame
        frame = frame.f_back
    return frame, asker or frame


def call_that_raised(error: BaseException) -> UserCall:
    """Return the innermost call of a model's code in the traceback of ``error``."""
    innermost, function = None, ""
    for entry in _entries(error.__traceback__):
        if _is_users(entry.tb_frame):
            innermost, function = entry, ""
        else:
            function = function or _function_in(entry.tb_frame)
    return UserCall(innermost.tb_frame.f_code.co_filename, innermost.tb_lineno, function) if innermost else UserCall()


def frames_of(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames of the traceback of ``error``, outermost first."""
    return (entry.tb_frame for entry in _entries(error.__traceback__))


def _entries(entry: TracebackType | None) -> Iterator[TracebackType]:
    while entry is not None:
        yield entry
        entry = entry.tb_next


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not is_torch(file) and not file.startswith((_PACKAGE, "<")) and "/contextlib.py" not in file


def _function_in(frame: FrameType) -> str:
    """Return the name of the function that a mode of torch is called for, if ``frame`` is in one."""
    if frame.f_code.co_name != "__torch_function__":
        return ""
    return getattr(frame.f_locals.get("func"), "__name__", "").strip("_")

"""MLIR's diagnostics and unsupported FX nodes as values, with the user's source lines."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from fx_importer.diagnostics.source_lines import source_line
from fx_importer.errors import ContractWarning, UnsupportedNode
from fx_importer.mlir.bindings import ir

if TYPE_CHECKING:
    from torch import fx

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Diagnostic:
    """One message from MLIR."""

    severity: str
    message: str
    frames: tuple[tuple[str, int], ...] = ()
    """``(file, line)``, innermost call first; empty if the location is unknown."""
    module_name: str | None = None
    """The qualified name of the ``nn.Module`` that the operation came from."""
    notes: tuple[Diagnostic, ...] = ()

    @property
    def where(self) -> str | None:
        """``file:line`` of the frame nearest to the user's own code: the innermost one outside torch."""
        frame = user_frame(self.frames)
        return f"{frame[0]}:{frame[1]}" if frame else None

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.message}"]
        if frame := user_frame(self.frames):
            lines.append(f"    at {frame[0]}:{frame[1]}" + (f" in {self.module_name}" if self.module_name else ""))
            if text := source_line(*frame):
                lines.append(f"        {text}")
        # MLIR's note of the current operation repeats the operation that the message shows.
        notes = (note for note in self.notes if not note.message.startswith("see current operation"))
        lines.extend(f"  {note}".replace("\n", "\n  ") for note in notes)
        return "\n".join(lines)


class ReportedError(Exception):
    """An `ir.MLIRError` of another process: its text and diagnostics."""

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...]):
        self.text = text
        self.diagnostics = diagnostics
        super().__init__(text, diagnostics)

    def __str__(self) -> str:
        return self.text


class PassError(Exception):
    """An invalid result of a Python pass; the message names the pass and its source line."""


def reason_of(error: Exception) -> str:
    """Return MLIR's diagnostics as text, or else type and message of ``error``."""
    if isinstance(error, PassError):
        return str(error)
    kind = "MLIRError" if isinstance(error, ReportedError) else type(error).__name__
    return "\n".join(map(str, diagnostics_of(error))) or f"{kind}: {error}"


def diagnostics_of(error: Exception) -> tuple[Diagnostic, ...]:
    """Return MLIR's diagnostics, of this process or another; empty if ``error`` is not MLIR's."""
    if isinstance(error, ReportedError):
        return error.diagnostics
    return _read(error) if isinstance(error, ir.MLIRError) else ()


def _read(error: ir.MLIRError) -> tuple[Diagnostic, ...]:
    return tuple(_diagnostic(info) for info in error.error_diagnostics)


def _diagnostic(info: ir.DiagnosticInfo) -> Diagnostic:
    frames, names = read_location(info.location)
    return Diagnostic(
        severity=info.severity.name.lower(),
        message=info.message,
        frames=frames,
        module_name=names[0] if names else None,
        notes=tuple(_diagnostic(note) for note in info.notes),
    )


def read_location(location: ir.Location) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """Return the ``(file, line)`` frames, innermost first, and the names that ``location`` holds."""
    frames: list[tuple[str, int]] = []
    names: list[str] = []
    # A diagnostic's location has the base class; the conversion to and from an attribute downcasts it.
    for leaf in _leaves(ir.Location.from_attr(location.attr, location.context)):
        if isinstance(leaf, str):
            names.append(leaf)
        else:
            frames.append(leaf)
    return tuple(frames), tuple(names)


def _leaves(location: ir.Location) -> Iterator[str | tuple[str, int]]:
    if isinstance(location, ir.FileLineColLoc):
        yield location.filename, location.start_line
    elif isinstance(location, ir.NameLoc):
        yield location.name_str
        yield from _leaves(location.child_loc)
    elif isinstance(location, ir.CallSiteLoc):
        yield from _leaves(location.callee)
        yield from _leaves(location.caller)
    elif isinstance(location, ir.FusedLoc):
        for part in location.locations:
            yield from _leaves(part)


def deduplicated(messages: Iterable[tuple[ir.Location, str]]) -> Iterator[tuple[ir.Location, str]]:
    """Yield each message once, at its first location, with the number of occurrences."""
    counts: dict[str, tuple[int, ir.Location]] = {}
    for location, sentence in messages:
        count, first = counts.get(sentence, (0, location))
        counts[sentence] = count + 1, first
    for sentence, (count, location) in counts.items():
        yield location, sentence + (f", {count} times" if count > 1 else "")


def emit_errors(messages: Iterable[tuple[ir.Location, str]]) -> None:
    """Emit each message as an MLIR error at its location."""
    for location, sentence in messages:
        location.emit_error(sentence)


def emit_warnings(messages: Iterable[tuple[ir.Location, str]]) -> None:
    """Emit each message as a `ContractWarning` with the user's source line."""
    for location, sentence in messages:
        frame = user_frame(read_location(location)[0])
        warnings.warn(sentence + (f" (at {frame[0]}:{frame[1]})" if frame else ""), ContractWarning, stacklevel=2)


def user_frame(frames: tuple[tuple[str, int], ...]) -> tuple[str, int] | None:
    """Return the innermost frame outside of torch's files and generated code, or else the innermost frame."""
    for frame in frames:
        if not is_torch(frame[0]):
            return frame
    return frames[0] if frames else None


def is_torch(file: str) -> bool:
    """Return whether ``file`` belongs to torch or is code that torch generated."""
    return "/torch/" in file or file.startswith(("torch/", "<eval_with_key>", "<frozen "))


@cache
def read_frames(trace: str | None) -> tuple[tuple[str, int], ...]:
    """Return the ``(file, line)`` pairs of a formatted Python stack, outermost first."""
    return tuple((file, int(line)) for file, line in _FRAME.findall(trace or ""))


def generated_line(trace: str | None) -> str | None:
    """Return the line where a formatted Python stack ends, if it ends in code that torch generated.

    In the subgraph of a branch or a loop, torch.export records no other frames.
    """
    frames = read_frames(trace)
    if trace is None or not frames or not frames[-1][0].startswith("<eval_with_key>"):
        return None
    return trace.strip().splitlines()[-1].partition(";")[0].strip()


def unsupported_node_at(node: fx.Node, subject: str, reason: str) -> UnsupportedNode:
    """Return an `UnsupportedNode` with the user's source line of ``node``, if known."""
    trace = node.meta.get("stack_trace")
    frame = user_frame(tuple(reversed(read_frames(trace))))
    if generated := generated_line(trace):
        reason += f"\n    in `{generated}`"
    where = f"{frame[0]}:{frame[1]}" if frame else None
    source = source_line(*frame) if frame else None
    return UnsupportedNode(subject, reason, where, source, node.name)


def unsupported_node(node: fx.Node, reason: str) -> UnsupportedNode:
    """Return an `UnsupportedNode` for ``node``, named with its target if it is a call."""
    return unsupported_node_at(
        node, f"{node.name} = {node.target}" if node.op == "call_function" else node.name, reason
    )

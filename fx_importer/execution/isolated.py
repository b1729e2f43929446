"""Runs any backend in a process of its own, which serves many modules and calls: a crash there is an exception here."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch

from fx_importer import errors
from fx_importer.bindings import ir
from fx_importer.errors import CrashedError
from fx_importer.execution.backend import Loaded, Value
from fx_importer.execution.modules import function_named
from fx_importer.isolation import Scratch, signal_name

_CHILD = (
    "import sys; sys.path = [path for path in sys.path if path]; "  # without the working directory
    "from fx_importer.execution.isolated_child import serve; serve(*map(int, sys.argv[1:]))"
)


@dataclass(frozen=True)
class IsolatedBackend:
    """The backend ``name`` in the process of ``worker``."""

    name: str
    worker: Worker = field(default_factory=lambda: Worker())

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Make the function ``func_name`` of ``module`` ready to run there; the module goes as bytecode, in a file.

        Raises:
            CrashedError: with the signal and the last words, if the process ends; so does a call. The next module
                starts a new one, and functions of the old one are lost.
            FxImporterError: as the backend does.
        """
        written = tuple(
            position
            for position, each in enumerate(function_named(module, func_name).type.inputs)
            if isinstance(each, ir.MemRefType)
        )
        process = self.worker.running()
        scratch = Scratch()
        path = scratch.path / "module.mlirbc"
        module.operation.write_bytecode(str(path))
        key = process.ask(self.name, ("load", self.name, str(path), func_name))
        function = _Function(self.name, process, key, written)
        weakref.finalize(function, process.dropped.append, key)
        return function


class Worker:
    """At most one process, which starts when it is first needed, and anew after a crash."""

    def __init__(self) -> None:
        self._process: _Process | None = None

    def running(self) -> _Process:
        if self._process is None or not self._process.alive:
            self._process = _Process()
        return self._process


class _Process:
    """A Python process that loads and calls. It ends with this object."""

    def __init__(self) -> None:
        requests, to_child = os.pipe()
        from_child, replies = os.pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", _CHILD, str(requests), str(replies)]
        try:
            self._child = subprocess.Popen(
                command,
                env=environment,
                pass_fds=(requests, replies),
                stdin=subprocess.PIPE,  # nothing comes: it is open as long as this process lives
                stdout=self._said,
                stderr=self._said,
            )
        finally:
            os.close(requests)
            os.close(replies)
        self._to, self._from = Connection(to_child, readable=False), Connection(from_child, writable=False)
        self.alive = True
        self.dropped: list[int] = []
        """Keys of functions that nobody holds any more; the next request says so."""
        self._end = weakref.finalize(self, _end, self._child, self._to, self._from, self._said)

    def ask(self, what: str, request: tuple[Any, ...]) -> Any:
        """Return the answer to a request; raise what the process raised."""
        if not self.alive:
            raise CrashedError(what, None, "its process had ended before")
        dropped = self.dropped.copy()
        del self.dropped[: len(dropped)]
        try:
            self._to.send_bytes(pickle.dumps((dropped, request)))
            succeeded, answer = pickle.loads(self._from.recv_bytes())
        except (EOFError, OSError):
            raise self._crashed(what) from None
        if succeeded:
            return answer
        raise _error(*answer)

    def _crashed(self, what: str) -> CrashedError:
        self.alive = False
        code = self._child.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        self._end()
        return CrashedError(what, signal_name(-code), said)


def _end(child: subprocess.Popen[bytes], *files: Any) -> None:
    for file in files:
        file.close()
    child.kill()
    child.communicate()


def _error(kind: str, message: str, attributes: dict[str, Any]) -> Exception:
    """Return the exception that the process raised; of ours with what it carried, or what names it in a sentence."""
    found = getattr(errors, kind, None)
    if not isinstance(found, type) or not issubclass(found, errors.FxImporterError):
        return RuntimeError(f"{kind}: {message}")
    error = found.__new__(found, message)
    error.__dict__.update(attributes)
    return error


@dataclass(frozen=True)
class _Function:
    """A function that the process holds."""

    name: str
    process: _Process
    key: int
    written: Sequence[int]
    """Which arguments it writes to."""

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        request = ("call", self.key, [_sent(each) for each in arguments], self.written)
        results, written = self.process.ask(self.name, request)
        for position, value in zip(self.written, written, strict=True):
            argument = arguments[position]
            assert isinstance(argument, torch.Tensor)
            argument.detach().copy_(value)
        return results


def _sent(value: Value) -> Value:
    """Return a tensor without what is around it in memory, which would be sent too."""
    if not isinstance(value, torch.Tensor) or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return value
    value = value.detach()
    return value.clone() if value.numel() * value.itemsize != value.untyped_storage().nbytes() else value

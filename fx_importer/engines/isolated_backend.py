"""Backend that runs another backend in a child process, which serves many modules and calls."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_importer.calls.backend import EVALUATION, Loaded, Value
from fx_importer.mlir.bindings import ir, write_bytecode
from fx_importer.mlir.functions import function_named
from fx_importer.options import Limits
from fx_importer.process.scratch import Scratch
from fx_importer.process.worker import Child, RestartingWorker


@dataclass(frozen=True)
class IsolatedBackend:
    """The backend ``name`` in the child process of ``worker``."""

    name: str
    worker: Worker = field(default_factory=lambda: Worker())
    limits: Limits = EVALUATION
    """Limits of compiling a module, and of a call."""

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Compile the function ``func_name`` of ``module`` in the child, which gets it as a file of bytecode.

        Raises:
            CrashedError: with the signal and the output, if the process ends or exceeds `limits`; a call raises it
                too. The next module starts a new process; functions of the old one are lost.
            FxImporterError: as the backend does.
        """
        written = tuple(
            position
            for position, input_ in enumerate(function_named(module, func_name).type.inputs)
            if isinstance(input_, ir.MemRefType)
        )
        unregistered = module.context.allow_unregistered_dialects
        process = self.worker.running()
        scratch = Scratch()
        path = scratch.path / "module.mlirbc"
        with scratch.writing():
            write_bytecode(module.operation, path)
        key = process.request(self.name, self.limits, "load", self.name, str(path), func_name, unregistered)
        function = _Function(self.name, process, key, written, self.limits)
        weakref.finalize(function, process.dropped.append, key)
        return function


class _Process(Child):
    """A child process with loaded functions."""

    def __init__(self) -> None:
        super().__init__("fx_importer.engines.isolated_backend_child:Functions")
        self.dropped: list[int] = []
        """Keys of functions without references, which the next request drops."""

    def request(self, what: str, limits: Limits, *request: Any) -> Any:
        """Return the answer to a request; raise what the child raised."""
        dropped = self.dropped.copy()
        del self.dropped[: len(dropped)]
        return self.ask(what, (dropped, request), limits)


class Worker(RestartingWorker[_Process]):
    """The child process that compiles and runs functions, started on demand and restarted after a crash."""

    def __init__(self) -> None:
        super().__init__(_Process)


@dataclass(frozen=True)
class _Function:
    """A function in the child process."""

    name: str
    process: _Process
    key: int
    written: Sequence[int]
    """The positions of the arguments that it writes to."""
    limits: Limits

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        compact = [_without_extra_storage(argument) for argument in arguments]
        results, written = self.process.request(self.name, self.limits, "call", self.key, compact, self.written)
        for position, value in zip(self.written, written, strict=True):
            argument = arguments[position]
            assert isinstance(argument, torch.Tensor)
            argument.detach().copy_(value)
        return results


def _without_extra_storage(value: Value) -> Value:
    """Return a tensor without the rest of its storage, which would be pickled too."""
    if not isinstance(value, torch.Tensor) or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return value
    value = value.detach()
    return value.clone() if value.numel() * value.itemsize != value.untyped_storage().nbytes() else value

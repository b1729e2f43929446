"""What serves in the process of `IsolatedBackend`."""

from __future__ import annotations

import fcntl
import itertools
import os
import pickle
import sys
from multiprocessing.connection import Connection
from typing import Any

from fx_importer.bindings import ir, load_dialects, new_context
from fx_importer.errors import FxImporterError
from fx_importer.execution.backend import Loaded
from fx_importer.execution.backends import backend_named

_PLAIN = (bool, int, float, str, type(None))


def serve(requests: int, replies: int) -> None:
    """Answer requests, read and written through these file descriptors, until the other side is gone."""
    _end_with(sys.stdin.fileno())
    incoming, outgoing = Connection(requests, writable=False), Connection(replies, readable=False)
    loaded: dict[int, Loaded] = {}
    keys = itertools.count()
    while True:
        try:
            dropped, request = pickle.loads(incoming.recv_bytes())
        except EOFError:
            return
        for key in dropped:
            del loaded[key]
        try:
            answer: Any = True, _answer(request, loaded, keys)
        except Exception as error:
            answer = False, (type(error).__name__, str(error), _attributes(error))
        outgoing.send_bytes(pickle.dumps(answer))


def _end_with(lifeline: int) -> None:
    """Have the kernel end this process when the other end of a pipe is closed, also in the middle of native code."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)  # from now on SIGIO, which ends a process that does not handle it


def _answer(request: Any, loaded: dict[int, Loaded], keys: Any) -> Any:
    match request:
        case ("load", backend, path, function):
            load_dialects(context := new_context())
            module = ir.Module.parseFile(path, context)
            key = next(keys)
            loaded[key] = backend_named(backend).load(module, function)
            return key
        case ("call", key, arguments, written):
            return loaded[key](*arguments), [arguments[position] for position in written]
    raise AssertionError(request)


def _attributes(error: Exception) -> dict[str, Any]:
    """Return what an exception of ours carries, as far as it means something in another process."""
    if not isinstance(error, FxImporterError):
        return {}
    kept = {name: value for name, value in vars(error).items() if isinstance(value, _PLAIN)}
    return kept | dict.fromkeys(vars(error).keys() & {"diagnostics", "refusals"}, ())

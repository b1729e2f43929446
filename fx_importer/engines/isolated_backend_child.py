"""The child process of `IsolatedBackend`."""

from __future__ import annotations

import itertools
from typing import Any

from fx_importer.calls.backend import Loaded
from fx_importer.engines.engine_table import backend_named
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.process.worker import Note


class Functions:
    """Loads functions, and calls them by key."""

    def __init__(self, _note: Note):
        self._loaded: dict[int, Loaded] = {}
        self._keys = itertools.count()

    def __call__(self, request: Any) -> Any:
        dropped, asked = request
        for key in dropped:
            del self._loaded[key]
        match asked:
            case ("load", backend, path, function, unregistered):
                load_dialects(context := new_context())
                context.allow_unregistered_dialects = unregistered
                module = ir.Module.parseFile(path, context)
                key = next(self._keys)
                self._loaded[key] = backend_named(backend).load(module, function)
                return key
            case ("call", key, arguments, written):
                return self._loaded[key](*arguments), [arguments[position] for position in written]
        raise AssertionError(asked)

"""Compiled code in the cache, with everything a process needs to run a module without compiling it.

Weights are not in it, nor in its key: code does not depend on their elements (`engines.jit.weight_table`).
"""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fx_importer.caching.disk_store import Store, users_store
from fx_importer.caching.uncacheable import NotCached
from fx_importer.caching.versions import versions
from fx_importer.calls.call_signature import Signature
from fx_importer.engines.jit.object_code import SUPPORTED
from fx_importer.mlir.bindings import bytecode_of, ir
from fx_importer.rewrites.llvm.blas_calls import routines
from fx_importer.rewrites.llvm.library_functions import LibraryFunction
from fx_importer.rewrites.llvm.operator_stubs import operator_stubs_of
from fx_importer.rewrites.llvm.parallel_loops import has_threads
from fx_importer.rewrites.llvm.weight_hoisting import HoistedWeight


@dataclass(frozen=True)
class Program:
    """A compiled function, without its code."""

    signature: Signature
    messages: Sequence[str]
    """Of the errors that it may end with, by their codes less one."""
    weights: Sequence[HoistedWeight]
    """The entries of the table that it takes."""
    arena: int
    """The bytes of memory that it takes for buffers."""
    slots: int
    """The number of slots that it takes for buffers of dynamic size."""
    placed: Sequence[int]
    """The results that it writes into memory that it takes."""
    kernels: Mapping[str, LibraryFunction]
    """The kernels of PyTorch that it calls."""


@dataclass(frozen=True)
class Entry:
    """The entry of one function of one module, compiled with the same options for the same processor."""

    store: Store
    key: str

    def read(self) -> tuple[Program, bytes] | None:
        """Return the program and its object file; None if they are missing."""
        data = self.store.get(self.key)
        if data is None:
            return None
        try:
            program, code = pickle.loads(data)  # from a file that only this user can write: it is code in any case
        except Exception:  # an unusable entry counts as missing, for any reason
            return None
        return (program, code) if isinstance(program, Program) and isinstance(code, bytes) else None

    def write(self, program: Program, code: bytes) -> None:
        """Keep the program and its object file, if the directory can be written."""
        self.store.put(self.key, pickle.dumps((program, code)))


def entry_of(module: ir.Module, *options: object) -> Entry | None:
    """Return the entry of ``module``, whose weights are elided, compiled with ``options``; None if it is not kept.

    Raises:
        UsageError: if an environment variable of the cache is invalid.
    """
    if not SUPPORTED or operator_stubs_of(module):  # these call functions of this process
        return None
    try:
        facts = ("compiled", versions(), _processor(), has_threads(), bool(routines()), *options)
    except (NotCached, OSError):
        return None
    bytecode = bytecode_of(module.operation)
    digest = hashlib.sha256(repr(facts).encode())
    digest.update(bytecode)
    return Entry(users_store(), digest.hexdigest())


@functools.cache
def _processor() -> str:
    """Return what distinguishes processors for LLVM."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    wanted = ("vendor_id", "cpu family", "model", "stepping", "flags")
    return "\n".join(line for line in first.splitlines() if line.split("\t")[0].strip() in wanted)

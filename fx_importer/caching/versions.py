"""Dependencies of a lowering besides program and options: versions, sources, and settings of torch."""

from __future__ import annotations

import functools
import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from torch._functorch import config as functorch_config
from torch.fx.experimental import _config as symbolic_config

from fx_importer.caching.uncacheable import NotCached
from fx_importer.mlir.bindings import ir
from fx_importer.process import load_time

_PACKAGES = ("torch", "torch-mlir", "numpy", "sympy")
_MARGIN = 2.0
"""Tolerance in seconds for file times, given the resolution of file systems and clocks."""


@functools.cache
def versions() -> str:
    """Return an identifier of the lowering code: versions, and the contents of this package's sources.

    Raises:
        NotCached: if they changed since this process began to import them, since it may run the old code.
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if path.stat().st_mtime > load_time.AT - _MARGIN:
            raise NotCached(f"{path} was changed while this process ran, or right before")
        digest.update(repr((str(path.relative_to(root)), hashlib.sha256(path.read_bytes()).digest())).encode())
    native = Path(ir.__file__ or "").parent / "_mlir_libs"
    libraries = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in native.glob("*.so*"))
    packages = [(name, version(name)) for name in _PACKAGES]
    return repr((sys.version, torch.version.git_version, packages, libraries, digest.hexdigest()))


def settings() -> str:
    """Return the settings of torch that affect tracing."""
    return repr(
        (
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.backends.cuda.matmul.fp32_precision,
            torch.are_deterministic_algorithms_enabled(),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            symbolic_config.get_hash(),  # pyright: ignore[reportAttributeAccessIssue]
            functorch_config.get_hash(),
        )
    )

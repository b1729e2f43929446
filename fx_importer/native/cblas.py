"""The CBLAS that native code calls for large matmuls."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fx_importer.errors import UsageError
from fx_importer.native.shared_objects import SharedObject, read_shared_object
from fx_importer.native.targets import NativeTarget

_SGEMM = ("cblas_sgemm", "scipy_cblas_sgemm", "cblas_sgemm64_", "cblas_sgemm_64", "scipy_cblas_sgemm64_")
"""The names of the matmul of float32: of most libraries, and of those with a prefix, or integers of 64 bits."""


@dataclass(frozen=True)
class Cblas:
    """A library with the interface of CBLAS."""

    name: str
    """What a linker calls it: ``openblas`` of ``-lopenblas``, or ``:FILE``."""
    sgemm: str = _SGEMM[0]
    library: SharedObject | None = None
    """The library that code is linked with here."""
    routines: Mapping[str, str] = field(default_factory=dict[str, str])
    """The routines that code calls, by element type."""

    @property
    def link_options(self) -> list[str]:
        """The options of a linker."""
        folder = [] if self.library is None else [f"-L{self.library.path.parent}"]
        return [*folder, f"-l{self.name}"]

    @property
    def integer(self) -> str:
        """The type of C of sizes."""
        return "int64_t" if "64" in self.sgemm else "int"

    @property
    def linked(self) -> str:
        """A sentence on the library to link with."""
        if self.library is None:
            return f"Link with -l{self.name}"
        return f"Link with {self.library.soname}"

    def calling(self, routines: Mapping[str, str]) -> Cblas | None:
        """Return the library with the ``routines`` that code calls; None if there are none."""
        return replace(self, routines=routines) if routines else None


def find_cblas(blas: str, target: NativeTarget, kind: str) -> Cblas:
    """Return the library ``blas``: a name, as of the option ``-l``, or the path of a shared library.

    A name is looked for only if the ``kind`` of native code is linked here, and not by whoever uses it.

    Raises:
        UsageError: if the library is not found, lacks the interface, or is for another processor.
    """
    if target.is_bare or target.processor.index_bits != 64:
        raise UsageError(f"{target.name} has no BLAS: leave blas='{blas}' out, loops compute matmuls")
    is_path, is_linked = os.sep in blas or ".so" in blas, kind in ("shared", "executable")
    if not is_path and not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", blas, re.ASCII):
        raise UsageError(
            f"blas='{blas}' is not a library: accepted are a name as after -l, such as 'openblas', and the path of a "
            "shared library"
        )
    if is_linked and target.system != "linux":
        raise UsageError(
            f"{target.name} is not linked with BLAS here: build kind='static' or kind='object', and link the program "
            "with it"
        )
    if not is_path and not is_linked:
        return Cblas(blas)
    path = Path(blas).absolute() if is_path else _search(blas, target)
    library = read_shared_object(path)
    if kind != "c" and library.architecture != target.architecture:
        raise UsageError(f"'{path}' is for {library.architecture}, and {target.name} is {target.architecture}")
    sgemm = next((name for name in _SGEMM if name in library.symbols), None)
    if sgemm is None:
        raise UsageError(f"'{path}' has no {_SGEMM[0]}: it is not a BLAS with the interface of C (CBLAS)")
    return Cblas(f":{path.name}", sgemm, library)


def _search(name: str, target: NativeTarget) -> Path:
    """Return the path of the library ``name`` on this machine."""
    if not target.is_linux_here:
        raise UsageError(
            f"blas='{name}' is looked for on this machine, which has no libraries of {target.name}: pass the path of "
            "one, or build kind='static' or kind='object', and link the program with it"
        )
    folders = _folders(target.architecture)
    for folder in folders:
        files = [folder / f"lib{name}.so", *sorted(folder.glob(f"lib{name}.so.[0-9]*"))]
        if path := next((file for file in files if file.is_file()), None):
            return path
    raise UsageError(
        f"there is no lib{name}.so here ({', '.join(map(str, folders))}): install one, such as Debian's "
        "libopenblas-dev, or pass the path of a library, such as the one of PyPI's scipy-openblas32"
    )


def _folders(architecture: str) -> Sequence[Path]:
    paths = [path for name in ("LIBRARY_PATH", "LD_LIBRARY_PATH") for path in os.environ.get(name, "").split(":")]
    system = [f"{root}{part}" for part in (f"lib/{architecture}-linux-gnu", "lib64", "lib") for root in ("/usr/", "/")]
    wanted = [*filter(None, paths), f"{sys.prefix}/lib", "/usr/local/lib", *system]
    return [*dict.fromkeys(Path(path).resolve() for path in wanted if Path(path).is_dir())]

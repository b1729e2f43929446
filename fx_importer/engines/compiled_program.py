"""Programs that an engine compiled ahead of time, with the machine code of their kernels."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fx_importer.mlir.output_files import save_bytes, save_files

_TEXTS = (".ptx", ".rocmasm", ".metal", ".s")
_MATRIX = re.compile(r"^\s*(?:mma\.sync|wgmma\.mma_async|v_(?:mfma|wmma)_)", re.MULTILINE)
_VECTOR = re.compile(
    r"^\s*(?:ld\.\S*\.v[248]\.|global_load_(?:dwordx[24]|b(?:64|128))|(?:buffer|flat)_load_(?:dwordx[24]|b(?:64|128)))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class CompiledProgram:
    """A compiled program."""

    target: str
    code: bytes = dataclasses.field(repr=False)
    """The contents of the file that the runtime of the engine loads."""
    dispatches: int
    """Launches of kernels in all functions."""
    kernels: Mapping[str, bytes] = dataclasses.field(repr=False)
    """Files by name: PTX, the assembly of LLVM, Metal or SPIR-V, and what else IREE writes."""
    library: Mapping[str, bytes] = dataclasses.field(default_factory=dict[str, bytes], repr=False)
    """The object file with the kernels, and its header, by suffix; empty where the code holds the kernels."""

    @property
    def matrix_instructions(self) -> int:
        """The number of instructions that multiply matrices (tensor cores), in the text of kernels; 0 for SPIR-V."""
        return self._count(_MATRIX)

    @property
    def vector_loads(self) -> int:
        """The number of loads of two or more elements, in the text of kernels; 0 for SPIR-V."""
        return self._count(_VECTOR)

    def _count(self, form: re.Pattern[str]) -> int:
        texts = (data.decode() for name, data in self.kernels.items() if name.endswith(_TEXTS))
        return sum(len(form.findall(text)) for text in texts)

    def save(self, path: str | os.PathLike[str], kernels: str | os.PathLike[str] | None = None) -> None:
        """Write the code to ``path``, and the files of the kernels to the directory ``kernels``, if given.

        `library` is written next to ``path``: ``model_kernels.o`` and ``model_kernels.h`` for ``model.vmfb``.

        Raises `UsageError` if a file cannot be written; what was written of it is removed.
        """
        save_bytes(self.code, path)
        if self.library:
            beside = Path(path)
            names = {f"{beside.stem}_kernels{suffix}": data for suffix, data in self.library.items()}
            save_files({beside.with_name(name): data for name, data in names.items()})
        if kernels is not None:
            save_files({Path(kernels, name): data for name, data in self.kernels.items()})

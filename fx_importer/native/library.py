"""A library of native code: its entry points, the data that they share, and how its C names are made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fx_importer.native.abi import EntryPoint, Size, Value
from fx_importer.native.cblas import Cblas
from fx_importer.native.cmsis_nn import CmsisNn
from fx_importer.native.targets import NativeTarget
from fx_importer.rewrites.llvm.arena import aligned
from fx_importer.rewrites.native.status_checks import FIRST_STATUS

STATUSES = {
    "OK": "no error",
    "ERROR_NULL": "a pointer is NULL",
    "ERROR_SIZE": "a size is outside of its range, or does not fit the others",
    "ERROR_ARENA": "the arena is too small",
    "ERROR_ALIGNMENT": "a pointer is not aligned",
    "ERROR_ASSUMPTION": "an assumption of the capture does not hold for these values",
    "ERROR_MEMORY": "the memory for the state is too small, or there is none",
    "ERROR_WEIGHTS": "the file of weights is missing, or is not of this model",
    "ERROR_PROCESSOR": "the processor lacks instructions that the code has",
}
"""The statuses of all libraries, from 0 on, and their texts."""
ALIGNMENT = 64
"""The alignment of the arena, of weights and of the memory for state, in bytes."""


@dataclass(frozen=True)
class Part:
    """A tensor in a block of bytes."""

    name: str
    offset: int
    nbytes: int
    dtype: str = "U8"
    """As safetensors spells it."""
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class WeightFile:
    """A file of weights that is mapped as a part of the block."""

    name: str
    nbytes: int
    header: int
    """The bytes before the tensors."""
    skipped: int
    """The bytes that are not mapped."""
    place: int
    """Where the rest begins in the block."""
    check: int
    """The hash of header and samples."""


@dataclass(frozen=True)
class Library:
    """EntryPoint points that share weights and state."""

    name: str
    """The prefix of its names in C."""
    entries: tuple[EntryPoint, ...]
    state: tuple[Part, ...]
    """The state in memory of the caller."""
    passed: Mapping[str, int]
    """The offsets, in the block of weights, of the initial state and of weights that entry points take as arguments.
    State that is missing begins as zeros."""
    weights_bytes: int
    weights: str
    """``embedded``, ``file`` or ``pointer``."""
    target: NativeTarget
    files: tuple[WeightFile, ...] = ()
    """What is mapped as the block of weights."""
    takes_paths: bool = False
    """Whether callers pass several paths of files of weights, and not one."""
    arrays: Mapping[int, str] | None = None
    """The arrays with the parts of `passed`, by offset, in C source, which has no block of weights."""
    constants: Mapping[str, str] = field(default_factory=dict[str, str])
    """More macros of the header, and their values."""
    blas: Cblas | None = None
    """The BLAS that code calls."""
    cmsis_nn: CmsisNn | None = None
    """The CMSIS-NN that code is built with, and the layers that call it."""

    @property
    def state_bytes(self) -> int:
        """The bytes of the state."""
        return sum(aligned(part.nbytes) for part in self.state)

    @property
    def takes_weights(self) -> bool:
        """Whether callers pass the block of weights."""
        return self.weights != "embedded" and self.weights_bytes > 0

    def macro(self, *parts: str) -> str:
        """Return the name of a macro."""
        return "_".join((self.name, *parts)).upper()

    def first_status(self, entry: EntryPoint) -> int:
        """Return the status of the first message of ``entry``."""
        before = self.entries[: self.entries.index(entry)]
        return FIRST_STATUS + sum(len(function.messages) for function in before)

    @property
    def messages(self) -> list[str]:
        """The texts of statuses from `FIRST_STATUS` on."""
        return [message for entry in self.entries for message in entry.messages]


def has_state(entry: EntryPoint) -> bool:
    """Return whether ``entry`` takes state."""
    return any(value.kind == "state" for value in entry.arguments)


def inputs_of(entry: EntryPoint) -> list[Value]:
    """Return what the caller passes to ``entry``, in order."""
    return [value for value in entry.arguments if value.kind == "input"]


def outputs_of(entry: EntryPoint) -> list[Value]:
    """Return what ``entry`` writes for the caller, in order."""
    return [value for value in entry.outputs if value.kind != "check"]


def parameters(library: Library, entry: EntryPoint) -> list[str]:
    """Return the declarations of the parameters of ``entry`` in C."""
    declared: list[str] = []
    if has_state(entry):
        declared.append(f"{library.name}_state *state")
    if library.takes_weights:
        declared.append("const void *weights")
    declared += [f"int64_t {size.c_name}" for size in entry.sizes]
    for value in inputs_of(entry):
        if value.shape is None:
            declared.append(f"{value.c_type} {value.c_name}")
        else:
            declared.append(f"{'' if value.written else 'const '}{value.c_type} *{value.c_name}")
    declared += [f"{value.c_type} *{value.c_name}" for value in outputs_of(entry)]
    return [*declared, "void *arena", "size_t arena_bytes"]


def count_of(shape: Sequence[int | str]) -> int | None:
    """Return the number of elements of a static shape; None for a dynamic one."""
    return None if any(isinstance(size, str) for size in shape) else math.prod(map(int, shape))


def size_parameters(sizes: Sequence[Size]) -> str:
    """Return the declarations of sizes in C."""
    return ", ".join(f"int64_t {size.c_name}" for size in sizes)

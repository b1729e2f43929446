"""Options of a compilation: frozen dataclasses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fx_importer.errors import UsageError
from fx_importer.output_types import NARROW_TOSA, OutputType, TosaTarget

if TYPE_CHECKING:
    from typing_extensions import Self


class _Policy(Enum):
    @classmethod
    def get(cls, spec: str | Self) -> Self:
        """Parse ``spec``. Raises `UsageError` with the accepted spellings."""
        try:
            return cls(spec)
        except ValueError:
            accepted = ", ".join(f"'{member.value}'" for member in cls)
            raise UsageError(f"unknown {cls.__name__.lower()} policy {spec!r}: accepted are {accepted}") from None


class Mutation(_Policy):
    """Representation of the buffers and inputs that a program mutates."""

    ERROR = "error"
    """Raise an error that names the mutated buffers and inputs."""
    FUNCTIONAL = "functional"
    """Functional state: mutated buffers become arguments, and their new values are the first results."""
    MUTABLE = "mutable"
    """Mutated inputs are ``!torch.tensor`` arguments that are overwritten in place."""


class Weights(_Policy):
    """Location of parameters and buffers: those in the state dict, and others that have no memory."""

    INLINE = "inline"
    """In the module, which shares their memory."""
    EXTERNAL = "external"
    """Outside the module, which refers to them by name. The manifest describes them, and `link` adds them."""
    ARGS = "args"
    """Outside the module: each is an argument of the functions, before the inputs."""


class Contract(_Policy):
    """Handling of operations that the output type does not allow."""

    ERROR = "error"
    """Raise an error that names every such operation."""
    WARN = "warn"
    """Emit a `ContractWarning` for each kind of operation."""


class Unsupported(_Policy):
    """Handling of operators that the output type does not support."""

    ERROR = "error"
    """Raise an error that names every such operator."""
    OUTLINE = "outline"
    """Replace the operator by a call of a stub: a function that the module declares and PyTorch runs."""


class Quantized(_Policy):
    """Arithmetic of operators between dequantize and quantize operators."""

    FLOAT = "float"
    INTEGER = "integer"


@dataclass(frozen=True)
class ExportOptions:
    """Options of `torch.export.export`, and of the exported program."""

    dynamic_shapes: Any = None
    strict: bool = False
    quantized: Quantized = Quantized.FLOAT


@dataclass(frozen=True)
class DecompositionOptions:
    """Options of the decompositions before the import."""

    table: Mapping[Any, Callable[..., Any]] | None = None
    """A table to use instead of the output type's own. An empty one decomposes nothing."""
    keep: tuple[str, ...] = ()
    """Operators, as ``aten.foo`` or ``aten.foo.default``, that are not decomposed."""
    extra: Mapping[Any, Callable[..., Any]] = field(default_factory=dict[Any, Callable[..., Any]])
    """Rules by operator that take precedence over the table's."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of the importer."""

    func_name: str = "main"
    func_visibility: str | None = None
    mutation: Mutation = Mutation.ERROR
    symbolic_shapes: bool = False
    """Emit ``torch.symbolic_int`` and ``torch.bind_symbolic_shape``. Only the torch dialect can hold them."""
    runtime_asserts: bool = False
    """Emit the assertions of the program and export's guards on input sizes."""
    weights: Weights = Weights.INLINE
    """Location of parameters and buffers. Unless they are inline, the result does not depend on their values."""
    outline_layers: bool = False
    """Outline submodules that compute the same, such as transformer layers, into one function."""
    mesh: str | None = None
    """The mesh of devices that the program runs on, ``"dp=2,tp=4"``; see `fx_importer.distributed.Mesh`."""
    input_names: tuple[str, ...] = ()
    """Names of the arguments that are inputs, in their order; by default, those of torch.export's placeholders."""
    output_names: tuple[str, ...] = ()
    """Names of the results that are outputs, in their order; by default, their paths."""
    plan: str | None = None
    """The dimensions that the axes of the mesh divide, by name, as JSON; see `fx_importer.distributed.Plan`."""


@dataclass(frozen=True)
class LoweringOptions:
    """Options of the pass pipelines."""

    backend_legal_ops: tuple[str, ...] = ()
    """Torch ops, as ``aten.foo`` or ``torch.aten.foo``, that the torch backend stage does not decompose."""
    allow_non_finites: bool = True
    """Whether a lowering may emit infinities, for example as the initial value of a maximum."""
    contract: Contract = Contract.ERROR
    """Handling of operations that the output type does not allow."""
    unsupported: Unsupported = Unsupported.ERROR
    """Handling of operators that the output type does not support."""
    lowerings: tuple[Any, ...] = ()
    """Rules for operators, registries of them, and names of registries, resolved by `fx_importer.lowerings.layers`."""
    fallback: tuple[OutputType, ...] = ()
    """Output types to try, in this order, for unsupported operators. The module holds the dialects of all of them."""
    narrow_integers: bool = False
    """For TOSA: no 64-bit integers, including arguments and results."""
    narrow_floats: bool = False
    """For TOSA: no float64, including arguments and results; without it, inside only."""
    tosa_target: TosaTarget | None = None
    """Target that TOSA is validated against; by default `TosaTarget()`, or `NARROW_TOSA` with narrow integers."""
    pipeline: Any = None
    """A `Pipeline` to run instead of the output type's, or a function that takes that one and returns another."""

    @property
    def valid_for(self) -> TosaTarget:
        """The target that TOSA is validated against."""
        return self.tosa_target or (NARROW_TOSA if self.narrow_integers else TosaTarget())


@dataclass(frozen=True)
class PrintOptions:
    """Options of printing, with weights elided. Nothing is printed by default."""

    graph: bool = False
    """The FX graph that is imported, to standard output."""
    stages: bool = False
    """The module after each stage, to standard output."""
    passes: bool = False
    """The module after each pass, to the native standard error, as MLIR does it."""


@dataclass(frozen=True)
class Limits:
    """Limits of another process for a request: a stage or a call."""

    seconds: float | None = None
    memory: int | None = None
    """Bytes of private memory, not counting mapped files such as weights."""

    @property
    def of_time(self) -> str:
        return f"time limit of {self.seconds:g} s"

    @property
    def of_memory(self) -> str:
        return f"memory limit of {(self.memory or 0) / 2**20:,.0f} MiB"


@dataclass(frozen=True)
class RunOptions:
    """Options of the execution of stages and of dumps. The resulting module does not depend on them.

    Raises `UsageError` for invalid or contradictory values.
    """

    isolate: bool = False
    """Run the passes in another process, so that a crash raises a `CrashedError`."""
    time_limit: float | None = None
    """Seconds that a stage of passes may take. For ``isolate``."""
    memory_limit: int | None = None
    """Bytes of private memory of the process, not counting mapped weights. For ``isolate``."""
    dump_dir: str | None = None
    """Directory of reports and dumps, each in a new subdirectory; by default ``FX_IMPORTER_DUMP_DIR``."""
    dump_ir: str | None = None
    """Regular expression of stage names: the module is dumped before and after each match."""
    cache: bool | None = None
    """Read the result from the cache, or store it if missing. None does so if ``FX_IMPORTER_CACHE_DIR`` is set."""

    def __post_init__(self) -> None:
        for name, limit in (("time_limit", self.time_limit), ("memory_limit", self.memory_limit)):
            if limit is not None and not self.isolate:
                raise UsageError(f"{name}={limit} is for a process that can be ended: pass isolate=True too")
            if limit is not None and limit <= 0:
                raise UsageError(f"{name}={limit}: a limit must be positive")
        if self.dump_ir is not None:
            try:
                re.compile(self.dump_ir)
            except re.error as error:
                raise UsageError(f"dump_ir={self.dump_ir!r} is not a regular expression: {error}") from None

    @property
    def is_cached(self) -> bool:
        return bool(os.environ.get("FX_IMPORTER_CACHE_DIR")) if self.cache is None else self.cache

    @property
    def limits(self) -> Limits:
        return Limits(self.time_limit, self.memory_limit)

    @property
    def directory(self) -> Path | None:
        """The directory of reports and dumps, which may not exist yet; None for the directory of temporary files."""
        chosen = self.dump_dir or os.environ.get("FX_IMPORTER_DUMP_DIR")
        return Path(chosen) if chosen else None


@dataclass(frozen=True)
class Options:
    """All options of one compilation."""

    output_type: OutputType = OutputType.RAW
    export: ExportOptions = field(default_factory=ExportOptions)
    decompositions: DecompositionOptions = field(default_factory=DecompositionOptions)
    importing: ImportOptions = field(default_factory=ImportOptions)
    lowering: LoweringOptions = field(default_factory=LoweringOptions)
    printing: PrintOptions = field(default_factory=PrintOptions)
    running: RunOptions = field(default_factory=RunOptions)

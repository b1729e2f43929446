"""Options of a compilation: frozen dataclasses, whose fields are the only declaration of each option.

A field made by `option` has the default and the documentation. Derived from it are the keyword of `lower` with its
default and docstring, the command-line option with its help, the text form in reports, and docs/options.md. `Keywords`
adds the types that a keyword accepts, for type checkers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fx_importer.errors import UsageError
from fx_importer.option_fields import Option, OptionGroup, declared, group, groups_of, option
from fx_importer.output_types import NARROW_TOSA, OutputType, TosaTarget
from fx_importer.policies import Capture, Contract, Mutation, Quantized, Unsupported, Weights

if TYPE_CHECKING:
    from torch._ops import OpOverload, OpOverloadPacket
    from torch.distributed.device_mesh import DeviceMesh
    from typing_extensions import TypedDict

    from fx_importer.diagnostics.progress import ProgressCallback
    from fx_importer.distributed import Plan
    from fx_importer.importing import FxImporter, FxImporterHooks
    from fx_importer.lowerings import LoweringRule, Lowerings
    from fx_importer.pipelines import Change

    class _ModelKeywords(TypedDict, total=False, extra_items=Any):
        """Any keyword: other names are keyword arguments of the model."""

else:
    from typing import TypedDict

    class _ModelKeywords(TypedDict, total=False):
        """Any keyword: other names are keyword arguments of the model."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of `torch.export.export`, and of the exported program."""

    dynamic_shapes: Any = option(
        None,
        "Dynamic dimensions of the inputs, as torch.export.export takes them.",
        python="Strings, as torch.onnx.export takes them, name dimensions: those of one name have one size.",
        has_text=False,  # a Python value; an exported program (.pt2) has its own
    )
    strict: bool = option(False, "Let torch.export trace through Python bytecode.")
    capture: Capture = option(
        Capture.AUTO,
        "What to do where Python code depends on the value of a tensor, which torch.export refuses: export reports the "
        "error. assume takes the values of the example inputs, and each call checks that they are the same. auto tries "
        "both values of strict first, and warns of what is assumed.",
    )
    reuse_traces: bool = option(
        True,
        "Trace submodules that are equal but for the values of their weights once, and copy the traced operators for "
        "the others. The program is the same.",
    )
    gradients: bool = option(
        False,
        "Compute the gradients of the first result, a loss, too: of the parameters, and of the inputs that require "
        "gradients.",
        python="They are results named after their parameter or input; one without a gradient has none.",
    )
    quantized: Quantized = option(
        Quantized.AUTO,
        "How to compute between dequantize and quantize operators: in floats or in integers. auto is integers for "
        "programs of quantize, and for every quantized program in TOSA.",
        python="With integers, verify compares with the integer program, and that with the model.",
    )


@dataclass(frozen=True)
class DecompositionOptions:
    """Options of the decompositions before the import."""

    table: Mapping[Any, Callable[..., Any]] | None = option(
        None,
        "A decomposition table to use instead of the output type's own. An empty one decomposes nothing.",
        keyword="decomposition_table",
        has_text=False,
    )
    keep: tuple[str, ...] = option(
        (),
        "Operators not to decompose, spelled aten.foo or aten.foo.default.",
        python="Operator objects are accepted too. Without an overload, all overloads are kept.",
    )
    extra: Mapping[Any, Callable[..., Any]] = option(
        {}, "Decompositions by operator or its name; they take precedence over the table.", has_text=False
    )


@dataclass(frozen=True)
class ImportOptions:
    """Options of the importer."""

    func_name: str = option("main", "The name of the function.")
    func_visibility: str | None = option(None, "The visibility of the function.", keyword=None, has_text=False)
    mutation: Mutation = option(
        Mutation.ERROR,
        "How to lower mutated state: reject it, return the new values as results, or overwrite it in place.",
    )
    symbolic_shapes: bool = option(
        False,
        "Emit torch.symbolic_int and torch.bind_symbolic_shape, for output types in the torch dialect.",
        keyword="import_symbolic_shape_expressions",
    )
    runtime_asserts: bool = option(
        False,
        "Emit the program's assertions, and the size ranges of its inputs, as runtime assertions. "
        "TOSA and StableHLO have none.",
    )
    weights: Weights = option(
        Weights.INLINE,
        "Where parameters and buffers are: in the module, external resources of the module, or arguments.",
        python="Inline weights share memory with the model. Otherwise the module does not depend on their values, and "
        "the model may be on the meta device or fake.",
    )
    outline_layers: bool = option(
        False,
        "Outline submodules that compute the same, such as transformer layers, into one function that is called for "
        "each.",
    )
    mesh: str | None = option(
        None,
        "The mesh of devices that the program runs on, as axes and sizes: 'dp=2,tp=4'.",
        python="A DeviceMesh is accepted too. Process groups become groups of its devices.",
        metavar="AXES",
    )
    input_names: tuple[str, ...] = option(
        (),
        "Names of the inputs, in their order, in the manifest and the IR. Default: those of the model's parameters.",
        metavar="NAME",
    )
    output_names: tuple[str, ...] = option(
        (), "Names of the outputs, in their order. Default: their paths.", metavar="NAME"
    )
    plan: str | None = option(
        None,
        "How a partitioner divides the program among the devices of the mesh.",
        python="A mapping from names of weights, inputs and outputs, with *, to placements: "
        '``{"*.up.weight": {"tp": Shard(0)}}``.',
        command="A JSON file, or package.module:name of a mapping or a function of the mesh.",
        metavar="PLAN",
    )


@dataclass(frozen=True)
class LoweringOptions:
    """Options of the pass pipelines."""

    backend_legal_ops: tuple[str, ...] = option(
        (), "Torch ops that the torch backend stage and the decompositions must keep, spelled aten.foo."
    )
    allow_non_finites: bool = option(
        True, "Whether a lowering may emit infinities, for example as the initial value of a maximum."
    )
    contract: Contract = option(
        Contract.ERROR,
        "What to do if the module contains illegal operations or types for its output type: fail, or warn.",
    )
    unsupported: Unsupported = option(
        Unsupported.ERROR,
        "What to do with unsupported operators: fail, or declare a function for each (a stub), which PyTorch runs.",
    )
    lowerings: tuple[Any, ...] = option(
        (),
        "Rules for operators, which take precedence over built-in ones.",
        python="Those of decomposes, lowers and external, whole Lowerings, and names of registries that packages "
        "provide.",
        command="The name of a registry of an installed package, or package.module:name.",
        metavar="NAME",
    )
    fallback: tuple[OutputType, ...] = option(
        (),
        "Output types to try, in this order, for operators that the requested one does not support.",
        python="The module then holds the dialects of all of them; Lowered.operator_output_types has the output type "
        "of each operator, and why.",
        metavar="|".join(member.value for member in OutputType),
    )
    fold: bool = option(
        True,
        "Compute what depends on weights alone while lowering, batch normalization into convolutions included.",
        python="Weights outside of the module stay as they are. Not for raw and torch.",
    )
    narrow_integers: bool = option(
        False, "For TOSA: replace 64-bit integers by 32-bit ones, including arguments and results."
    )
    narrow_floats: bool = option(
        False,
        "For TOSA: replace float64 by float32, including arguments and results. By default, inside only.",
    )
    tosa_target: TosaTarget | None = option(
        None,
        "TOSA target to validate for, 'version=1.0 profiles=pro_int,pro_fp extensions=bf16 level=8k'. "
        "Default: TOSA 1.1 (draft) with most extensions, or TOSA 1.0 with narrow integers.",
        metavar="TARGET",
    )
    pipeline: Any = option(
        None,
        "A function that takes the output type's Pipeline and returns another, or a pipeline to run instead.",
        python="``lambda pipeline: pipeline.after('torch-backend', my_pass)``; see `pipeline_for`.",
        has_text=False,
    )

    @property
    def valid_for(self) -> TosaTarget:
        """The target that TOSA is validated against."""
        return self.tosa_target or (NARROW_TOSA if self.narrow_integers else TosaTarget())


@dataclass(frozen=True)
class PrintOptions:
    """Options of printing, with weights elided. Nothing is printed by default."""

    graph: bool = option(
        False, "Print the imported FX graph to standard output.", keyword="enable_graph_printing", has_text=False
    )
    stages: bool = option(
        False, "Print the module after each stage to standard output.", keyword="verbose", has_text=False
    )
    passes: bool = option(
        False,
        "Print the module after each pass to the native standard error, as MLIR does.",
        keyword="enable_ir_printing",
        has_text=False,
    )


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

    isolate: bool = option(
        False,
        "Run the passes in another process: an abort or an exceeded limit becomes a CrashedError with a report.",
    )
    time_limit: float | None = option(
        None, "Time limit of a stage of passes, in seconds, with isolate=True.", metavar="SECONDS"
    )
    memory_limit: int | None = option(
        None,
        "Limit of the private memory of the process in bytes, without mapped weights, with isolate=True.",
        metavar="BYTES",
    )
    dump_dir: str | None = option(
        None,
        "Directory for failure reports and dumps, each in a new subdirectory. Default: FX_IMPORTER_DUMP_DIR, or the "
        "directory of temporary files.",
        metavar="DIRECTORY",
    )
    dump_ir: str | None = option(
        None,
        "A regular expression: dump the IR before and after the stages and FX passes that it matches, and their times.",
        metavar="REGEX",
    )
    cache: bool | None = option(
        None,
        "Read the result from the cache, or add it. Default: only if FX_IMPORTER_CACHE_DIR is set.",
        python="Not used with fx_importer.",
    )

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

    output_type: OutputType = option(
        OutputType.RAW, "The output type to lower to.", python="An `OutputType` or any spelling of its name."
    )
    export: ExportOptions = group(ExportOptions, "Export")
    decompositions: DecompositionOptions = group(DecompositionOptions, "Decompositions")
    importing: ImportOptions = group(ImportOptions, "Import")
    lowering: LoweringOptions = group(LoweringOptions, "Passes")
    printing: PrintOptions = group(PrintOptions, "Printing")
    running: RunOptions = group(RunOptions, "Isolation, dumps and cache")


@dataclass(frozen=True)
class CallOptions:
    """Keywords of `lower` that are not in `Options`."""

    options: Any = option(None, "An `Options`, instead of the keywords that it holds.")
    fx_importer: Any = option(None, "An importer to use instead of a new one; programs are imported into its module.")
    hooks: Any = option(None, "Hooks of an integrator; not with fx_importer, which has its own.")
    progress: Any = option(
        False,
        "Show progress on standard error, if that is a terminal, or in a notebook; or a function that is called with "
        "a `Progress` a few times a second.",
    )
    kwargs: Any = option(None, "The model's keyword arguments, for names that are options too.")
    experimental_support_mutation: bool = option(False, "torch-mlir's name for mutation='mutable'.")


GROUPS: Mapping[str, OptionGroup] = groups_of(Options)
"""The fields of `Options` that hold further options."""

OPTIONS: tuple[Option, ...] = (
    *declared(Options),
    *(option for name, kind in GROUPS.items() for option in declared(kind.options, name)),
)
"""Every option that a lowering depends on. Names and keywords are unique."""

CALL_OPTIONS: tuple[Option, ...] = declared(CallOptions, "call")

KEYWORDS: Mapping[str, Option] = {
    option.keyword: option for option in (*OPTIONS, *CALL_OPTIONS) if option.keyword is not None
}
"""All keywords of `lower`."""


class Keywords(_ModelKeywords, total=False):
    """The types that the keywords of `lower` and `export_and_import` accept, for type checkers.

    It has a key for each of `KEYWORDS`.
    """

    output_type: str | OutputType
    dynamic_shapes: Any
    strict: bool
    capture: str | Capture
    reuse_traces: bool
    gradients: bool
    quantized: str | Quantized
    decomposition_table: Mapping[Any, Callable[..., Any]] | None
    keep: Sequence[str | OpOverload | OpOverloadPacket]
    extra: Mapping[Any, Callable[..., Any]] | None
    func_name: str
    mutation: str | Mutation
    import_symbolic_shape_expressions: bool
    runtime_asserts: bool
    weights: str | Weights
    outline_layers: bool
    mesh: str | DeviceMesh | None
    input_names: Sequence[str]
    output_names: Sequence[str]
    plan: Mapping[str, Any] | str | Plan | None
    backend_legal_ops: Sequence[str] | None
    allow_non_finites: bool
    contract: str | Contract
    unsupported: str | Unsupported
    lowerings: LoweringRule | Lowerings | str | Iterable[LoweringRule | Lowerings | str]
    fallback: str | OutputType | Iterable[str | OutputType]
    fold: bool
    narrow_integers: bool
    narrow_floats: bool
    tosa_target: str | TosaTarget | None
    pipeline: Change | None
    enable_graph_printing: bool
    verbose: bool
    enable_ir_printing: bool
    isolate: bool
    time_limit: float | None
    memory_limit: int | None
    dump_dir: str | os.PathLike[str] | None
    dump_ir: str | None
    cache: bool | None
    experimental_support_mutation: bool
    options: Options | None
    fx_importer: FxImporter | None
    hooks: FxImporterHooks | None
    progress: bool | ProgressCallback
    kwargs: Mapping[str, Any] | None

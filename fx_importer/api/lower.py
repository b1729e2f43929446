"""What users call: `lower` and its kin. Each makes options of its keywords, and has the driver compile."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.export import ExportedProgram

from fx_importer.api.keywords import (
    KEYWORDS,
    Keywords,
    options_of,
    signature_with_keywords,
    split_keywords,
)
from fx_importer.api.lowered import Lowered
from fx_importer.canonicalization import legalize_graph
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.driver import compile_programs
from fx_importer.compiler.stages import admit, new_trace, run_pipeline
from fx_importer.compiler.steps import Call
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.errors import UsageError
from fx_importer.exporting.example_inputs import check_inputs
from fx_importer.importing import FxImporter, FxImporterHooks
from fx_importer.mlir.bindings import ir
from fx_importer.options import Contract, Mutation, Options, TosaTarget
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Change
from fx_importer.pipelines.isolated_runner import stage_runner
from fx_importer.verification import Divergence

if TYPE_CHECKING:
    from typing_extensions import Unpack


def lower(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any] | Mapping[str, ExportedProgram],
    *args: Any,
    **keywords: Unpack[Keywords],
) -> Lowered:
    """Export ``f`` and lower it to ``output_type``, keeping the program and a record of the stages.

    Args:
        f: the model, a plain function, or an exported program (whose inputs were given when it was exported). Or
            several exported programs by name: a function each in one module, where they share weights and state.
        *args: example inputs.
        output_type: an `OutputType` or any spelling of one; by default RAW.
        options: a whole `Options`, instead of the keywords that it holds: all but ``fx_importer``, ``hooks``,
            ``progress`` and ``kwargs``. Its records have the defaults of these keywords too.
        fx_importer: an importer to use instead of a new one; its module is filled.
        dynamic_shapes: as `torch.export.export` takes it.
        strict: as `torch.export.export` takes it.
        mutation: what becomes of state that the program mutates, a `Mutation` or its name.
        weights: where parameters and buffers are, a `Weights` or its name: in the module, sharing their memory; or
            elsewhere, so that nothing depends on their values. The model may then be on the meta device, or fake.
        experimental_support_mutation: torch-mlir's name for ``mutation="mutable"``.
        import_symbolic_shape_expressions: emit ``torch.symbolic_int`` and ``torch.bind_symbolic_shape``, where the
            output type is of the torch dialect: no other can hold them.
        runtime_asserts: emit assertions: what the program asserts of its values, and what export took for granted of
            its inputs' sizes. Not for TOSA and StableHLO, which have none.
        outline_layers: make one private function of submodules that compute the same, transformer layers say, and call
            it for each, with its weights: then a deep model costs little more than one of a single layer.
        hooks: where an integrator steps in; not together with ``fx_importer``, which has its own.
        decomposition_table: a table to use instead of the output type's own; an empty one decomposes nothing.
        keep: operators, or their names (``"aten.linear"``, ``"aten.linear.default"``), that are not decomposed. Without
            its overload, an operator stands for all of them.
        extra: functions by operator, or by name, that decompose it; they go before what the table has.
        func_name: the name of the function.
        enable_graph_printing: print the FX graph that is imported.
        verbose: print the module after each stage, weights elided.
        enable_ir_printing: print the module after each pass, weights elided.
        backend_legal_ops: torch ops that the torch backend stage leaves whole, and the decompositions too.
        allow_non_finites: whether a lowering may emit infinities.
        contract: what becomes of a module that holds what its output type may not hold, a `Contract` or its name: an
            error, or a `ContractWarning`.
        unsupported: what becomes of an operator that the output type cannot take, an `Unsupported` or its name: an
            error; or, with ``"outline"``, a call of a function that the module declares, and PyTorch runs.
        lowerings: rules for operators that go before what is built in, from `decomposes`, `lowers` and `external`;
            whole `Lowerings`; and the names of such that packages offer.
        fallback: output types that take, in this order, what ``output_type`` cannot, operator by operator. The module
            then holds the dialects of all of them, and ``Lowered.operator_output_types`` says what went where, and why.
        narrow_integers: for TOSA: no integers of 64 bits, arguments and results included.
        tosa_target: what TOSA is to be valid for, a `TosaTarget` or its text; without it, TOSA 1.1 (draft) with most
            extensions, or TOSA 1.0 with narrow integers.
        pipeline: a function that takes the output type's `Pipeline` and returns another, ``lambda pipeline:
            pipeline.after("torch-backend", my_pass)``; or a whole one, to run instead. See `pipeline_for`.
        isolate: run the passes in a process of their own, where an abort, or a limit that is reached, is a
            `CrashedError` with a report.
        time_limit: seconds that each stage of passes may take, with ``isolate``.
        memory_limit: bytes that the process may have to itself, weights that it maps apart, with ``isolate``.
        dump_dir: where reports of failures and dumps go, each in a new directory; without it, where
            ``FX_IMPORTER_DUMP_DIR`` says, or temporary files are.
        dump_ir: a regular expression: what is before and after stages of such names is written down, weights elided,
            with the time of each stage.
        progress: show on standard error how far the work has come, if that is a terminal, or in a notebook; or a
            function that is told so, in a `Progress`, a few times a second.
        cache: take the outcome from the user's cache if the same program was lowered so before, and keep it there if
            not; without it, if ``FX_IMPORTER_CACHE_DIR`` names a directory. With ``fx_importer``, there is none.
        kwargs: the model's keyword arguments, for names that are options here too.
        **keywords: these, and the model's own keyword arguments.

    Raises:
        UsageError: for an option or an input that is not one.
        ExportError: if torch.export cannot capture ``f``.
        UnsupportedProgramError: listing everything in the program that cannot be imported.
        StageFailed: if a stage of the lowering fails; it names a directory that reproduces the failure.
        CrashedError: if a stage ends its own process; likewise.
    """
    ours, inputs = split_keywords(f, keywords)
    importer, hooks = ours.get("fx_importer"), ours.get("hooks")
    if importer is not None and hooks is not None:
        raise UsageError("pass the hooks to the FxImporter, or pass hooks= without fx_importer=")
    options = options_of(ours)
    if importer is not None:
        options = replace(options, running=replace(options.running, cache=False))
    func_name = options.importing.func_name
    if isinstance(f, Mapping):
        calls = _entry_points(f, args, inputs, func_name)
    else:
        if not isinstance(f, ExportedProgram):
            check_inputs(f, args, inputs, options=KEYWORDS)
        calls = {func_name: (f, args, inputs)}
    with reporting_progress(ours.get("progress", False)):
        return Lowered.of(compile_programs(calls, importer or FxImporter(hooks=hooks), options))


def export_and_import(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any] | Mapping[str, ExportedProgram],
    *args: Any,
    **keywords: Unpack[Keywords],
) -> ir.Module:
    """Export ``f`` and lower it to ``output_type``; return only the module.

    Takes what `lower` takes, and raises what it raises.
    """
    return lower(f, *args, **keywords).module


for _function in (lower, export_and_import):
    setattr(_function, "__signature__", signature_with_keywords(_function))  # noqa: B010 - functions have no such field


def _entry_points(
    programs: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], func_name: str
) -> dict[str, Call]:
    """Return the calls of several programs, given by name; raises `UsageError` unless that is what was given."""
    wrong = [name for name, program in programs.items() if not isinstance(program, ExportedProgram)]
    if wrong or not programs:
        kinds = ", ".join(f"'{name}' is of type {type(programs[name]).__name__}" for name in wrong) or "there are none"
        raise UsageError(f"several entry points are given as exported programs by name, but {kinds}: export each first")
    if args or kwargs or func_name != "main":
        raise UsageError("with programs by name, inputs and func_name have no place: each is exported with its own")
    return {name: (program, (), {}) for name, program in programs.items()}


def compare_decompositions(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any],
    *args: Any,
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    keep: Sequence[str | OpOverload | OpOverloadPacket] = (),
    extra: Mapping[Any, Callable[..., Any]] | None = None,
    dynamic_shapes: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Divergence | None:
    """Run ``f`` in PyTorch before and after it is decomposed, and find the first operation whose rule is wrong.

    Args:
        f: the model, a plain function, or an exported program (which is called with its own example inputs).
        *args: inputs.
        decomposition_table: the table; without it, that of RAW, which keeps what it can.
        keep: as `lower` takes it.
        extra: as `lower` takes it.
        dynamic_shapes: as `torch.export.export` takes it.
        rtol: as for `Lowered.verify`.
        atol: as for `Lowered.verify`.
        kwargs: the model's keyword arguments.

    Returns:
        None if all agrees.

    Raises:
        FxImporterError: as `lower` does.
    """
    lowered = lower(
        f,
        *args,
        mutation=Mutation.FUNCTIONAL,
        dynamic_shapes=dynamic_shapes,
        decomposition_table=decomposition_table,
        keep=keep,
        extra=extra,
        kwargs=kwargs,
    )
    return lowered.bisect(backend="eager", rtol=rtol, atol=atol)


def stateless_fx_import(
    gm: torch.fx.GraphModule,
    output_type: str | OutputType = OutputType.RAW,
    fx_importer: FxImporter | None = None,
    hooks: FxImporterHooks | None = None,
    model_name: str = "main",
    enable_graph_printing: bool = False,
    verbose: bool = False,
    enable_ir_printing: bool = False,
    backend_legal_ops: Sequence[str] | None = None,
    allow_non_finites: bool = True,
    contract: str | Contract = Contract.ERROR,
    narrow_integers: bool = False,
    tosa_target: str | TosaTarget | None = None,
    pipeline: Change | None = None,
    isolate: bool = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    dump_dir: str | os.PathLike[str] | None = None,
    dump_ir: str | None = None,
) -> ir.Module:
    """Import a graph of ATen operators whose placeholders are all its inputs, and lower it to ``output_type``.

    The graph is taken as it is: nothing is decomposed. Its nodes carry example values (``node.meta["val"]``).
    The options are those of `lower`.

    Raises:
        UnsupportedProgramError: listing everything in the graph that cannot be imported.
        StageFailed: if a stage of the lowering fails.
        CrashedError: if a stage ends its own process.
    """
    importer = fx_importer or FxImporter(hooks=hooks)
    keywords = {
        "output_type": output_type,
        "enable_graph_printing": enable_graph_printing,
        "verbose": verbose,
        "enable_ir_printing": enable_ir_printing,
        "backend_legal_ops": backend_legal_ops,
        "allow_non_finites": allow_non_finites,
        "contract": contract,
        "narrow_integers": narrow_integers,
        "tosa_target": tosa_target,
        "pipeline": pipeline,
        "isolate": isolate,
        "time_limit": time_limit,
        "memory_limit": memory_limit,
        "dump_dir": dump_dir,
        "dump_ir": dump_ir,
        "cache": False,
    }
    return import_graph(gm, importer, model_name, options_of(keywords))


def import_graph(graph: torch.fx.GraphModule, importer: FxImporter, name: str, options: Options) -> ir.Module:
    """Import a graph as the function ``name`` of the importer's module, and lower the module."""
    if options.printing.graph:
        graph.print_readable()
    compilation = Compilation.of(options)
    pipeline = compilation.pipeline
    trace = new_trace(options, ["legalize", "import", *(stage.name for stage in pipeline.stages)])
    admit(options.output_type, importer.module.context)
    run = stage_runner(importer.module, options.running)
    with trace.stage("legalize"):
        legal = legalize_graph(graph, compilation.target.dtypes)
    with trace.stage("import", importer.module):
        importer.import_graph_module(legal, func_name=name)
    run_pipeline(pipeline, importer.module, trace, run, options.printing)
    return importer.module

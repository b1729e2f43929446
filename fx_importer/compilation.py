"""Export, decompose, canonicalize, import, lower: the one file that knows the order."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.export import ExportedProgram

from fx_importer.bindings import ir
from fx_importer.canonicalization import canonicalize, fold_constants, legalize, legalize_graph, settle_sizes
from fx_importer.causes import Cause
from fx_importer.decompositions import Changes, decompose
from fx_importer.errors import CrashedError, StageFailed, UnsupportedProgramError, UsageError
from fx_importer.exporting import export_program
from fx_importer.exporting.inputs import check_inputs, parameters_of
from fx_importer.importing import FxImporter, FxImporterHooks
from fx_importer.importing.entry_points import shared_state
from fx_importer.importing.signature import mutated_state
from fx_importer.lowered import Lowered
from fx_importer.lowering import new_trace, run_pipeline
from fx_importer.manifest import NARROW, Hole, Manifest
from fx_importer.options import (
    Contract,
    DecompositionOptions,
    ExportOptions,
    ImportOptions,
    LoweringOptions,
    Mutation,
    Options,
    PrintOptions,
    RunOptions,
    TosaTarget,
    Unsupported,
)
from fx_importer.output_types import OutputType
from fx_importer.pipelines import VERIFIERS, Pipeline
from fx_importer.pipelines.isolated import RunStage, stage_runner
from fx_importer.probing import Prober, Store, causes_in, expected, outline
from fx_importer.targets import TARGETS
from fx_importer.trace import Investigator, Trace
from fx_importer.verification import Divergence

P = ParamSpec("P")
R = TypeVar("R")

Call = tuple[Any, Sequence[Any], Mapping[str, Any]]
"""A model and what it is called with. An exported program needs no inputs."""


def compile_programs(
    calls: Mapping[str, Call],
    importer: FxImporter,
    options: Options,
    *,
    report: bool = True,
    trace: Trace | None = None,
) -> Lowered:
    """Carry models to functions of one module, keeping a record of every stage; ``report`` what fails.

    The record is ``trace``, if there is one; it then has what reports and explains.
    """
    Changes.of(options.decompositions.keep, options.decompositions.extra)  # raises before any work
    target = TARGETS[options.output_type]
    pipeline = target.pipeline(options.lowering)
    stages = ("export", "decompose", "canonicalize", "legalize", "import", *(stage.name for stage in pipeline.stages))
    if trace is None:
        trace = new_trace(options, stages, _investigator(options)) if report else Trace()
    run = stage_runner(importer.module, options.running)
    with trace.stage("export") as record:
        exported = {name: export_program(*call, options.export) for name, call in calls.items()}
        trace.programs = record.programs = exported
    programs = canonical(exported, options, trace)
    if options.printing.graph:
        for program in programs.values():
            program.graph_module.print_readable()
    try:
        import_canonical(programs, importer, options, trace)
    except UnsupportedProgramError as error:
        if not report:
            raise
        raise _complete(error, programs, importer, options) from None
    holes = _lower_imported(importer.module, pipeline, options, trace, run)
    trace.imported = None  # it was there to find out what failed
    manifest = Manifest(
        options.output_type.value,
        {name: importer.functions[name] for name in programs},
        {name: held for function in programs for name, held in importer.state[function].items()},
        {name: held for function in programs for name, held in importer.constants[function].items()},
        holes,
    )
    if options.lowering.narrow_integers and target.narrows:
        manifest = manifest.passing(NARROW)
    relower = functools.partial(_relower, importer, options)
    return Lowered(programs, exported, importer.module, manifest, trace, options, relower)


_ROUNDS = 4
"""How often a module is lowered at most: what fails only once its neighbours are gone takes another time."""


def _lower_imported(
    module: ir.Module, pipeline: Pipeline, options: Options, trace: Trace, run: RunStage
) -> dict[str, Hole]:
    """Lower ``module`` in place; return what stands for the operators that were outlined, if they were to be.

    ``run`` runs stages on ``module`` as it is now.
    """
    holes: dict[str, Hole] = {}
    outlines = options.lowering.unsupported is Unsupported.OUTLINE
    for _ in range(_ROUNDS if outlines else 0):
        # Of an attempt that fails, no report is written.
        attempt = replace(
            trace, reporter=None, investigate=_investigator(options), stages=[*trace.stages], imported=None
        )
        try:
            run_pipeline(pipeline, module, attempt, run, options.printing)
        except (StageFailed, CrashedError) as error:
            assert attempt.imported is not None  # or there would have been no stage to fail
            again = attempt.imported.clone()
            found = outline(again, {cause.call for cause in error.causes})
            _become(module, again if found else attempt.imported)
            run = stage_runner(module, options.running)
            if not found:
                break
            holes |= found
            pipeline = pipeline.without(*VERIFIERS)
        else:
            trace.stages = attempt.stages
            return holes
    run_pipeline(pipeline, module, trace, run, options.printing)
    return holes


def _become(module: ir.Module, other: ir.Operation) -> None:
    """Let ``module`` hold copies of what ``other``, a module of the same context, holds."""
    for op in list(module.body.operations):
        op.operation.erase()
    for op in other.regions[0].blocks[0].operations:
        module.body.append(op.operation.clone())


def canonical(exported: Mapping[str, ExportedProgram], options: Options, trace: Trace) -> dict[str, ExportedProgram]:
    """Return programs as the importer reads them, with what the output type does not take decomposed."""
    target = TARGETS[options.output_type]
    asserts = target.importing(options.importing).runtime_asserts
    programs = dict(exported)
    with trace.stage("decompose") as record:
        for name, program in programs.items():
            settled = settle_sizes(program)
            programs[name] = decompose(settled, target.table(options, settled))
        record.programs = programs
    with trace.stage("canonicalize") as record:
        programs = {name: canonicalize(program, assertions=asserts) for name, program in programs.items()}
        record.programs = programs
    return programs


def import_canonical(
    programs: Mapping[str, ExportedProgram], importer: FxImporter, options: Options, trace: Trace
) -> None:
    """Import programs in the dtypes of the output type, a function each.

    Raises:
        UsageError: if state is to be overwritten, and the output type cannot.
        UnsupportedProgramError: listing what cannot be imported.
    """
    target = TARGETS[options.output_type]
    if options.importing.mutation is Mutation.MUTABLE and not target.in_place:
        _refuse_in_place(programs, options.output_type)
    with trace.stage("legalize") as record:
        legal = record.programs = {name: legalize(program, target.dtypes) for name, program in programs.items()}
    with trace.stage("import", importer.module):
        state = shared_state(legal)
        if target.folds:
            legal = {name: fold_constants(program, state) for name, program in legal.items()}
        for name, program in legal.items():
            named = replace(target.importing(options.importing), func_name=name)
            importer.import_exported_program(program, named, state, tensors_only=target.tensors_only)


def _relower(
    importer: FxImporter,
    options: Options,
    f: Any,
    args: Sequence[Any],
    decompositions: DecompositionOptions | None,
) -> Lowered:
    """Lower ``f`` with the options of another program; no failure is reported, and nothing printed."""
    options = replace(
        options,
        export=ExportOptions(),
        printing=PrintOptions(),
        running=replace(options.running, dump_ir=None),
        decompositions=decompositions or options.decompositions,
    )
    new = FxImporter(hooks=importer.hooks, handlers=importer.handlers)
    return compile_programs({options.importing.func_name: (f, args, {})}, new, options, report=False)


def _investigator(options: Options) -> Investigator:
    """Return what finds the operators that a lowering with ``options`` fails for."""

    def investigate(imported: ir.Operation) -> tuple[Cause, ...]:
        return causes_of(imported, options, prober_for(options))

    return investigate


def _complete(
    error: UnsupportedProgramError, programs: Mapping[str, ExportedProgram], importer: FxImporter, options: Options
) -> UnsupportedProgramError:
    """Return ``error`` with all else that would be refused."""
    headline = error.headline
    if options.lowering.unsupported is Unsupported.OUTLINE:
        headline = f"{headline.removesuffix(':')} (unsupported='outline' is for what can be imported):"
    if not any(each.node for each in error.refusals):
        return UnsupportedProgramError(headline, error.refusals)

    def imported(programs: Mapping[str, ExportedProgram]) -> ir.Operation:
        new = FxImporter(hooks=importer.hooks, handlers=importer.handlers)
        import_canonical(programs, new, options, Trace())
        return new.module.operation

    prober = prober_for(options)
    found = expected(programs, imported, lambda module: causes_of(module, options, prober))
    return UnsupportedProgramError(headline, found.refusals, found.causes)


def prober_for(options: Options, store: Store | None = None) -> Prober:
    """Return what lowers small modules with ``options`` to any output type."""
    return Prober({each: target.pipeline(options.lowering) for each, target in TARGETS.items()}, store)


def causes_of(imported: ir.Operation, options: Options, prober: Prober) -> tuple[Cause, ...]:
    """Return what of a module, as it was imported, the output type refuses."""
    target = TARGETS[options.output_type]
    kept = {str(operator) for operator in target.decompositions.keys() - target.table(options, None).keys()}
    return tuple(causes_in(imported, options.output_type, prober, kept))


def _refuse_in_place(programs: Mapping[str, ExportedProgram], output_type: OutputType) -> None:
    for program in programs.values():
        signature = program.graph_signature
        mutated = [*mutated_state(program), *signature.user_inputs_to_mutate.values()]
        if mutated:
            raise UsageError(
                f"{output_type.value} has values and no memory to overwrite, and the program mutates "
                f"{', '.join(map(repr, sorted(mutated)))}: pass mutation='functional'"
            )


def _apart_from_the_model(function: Callable[P, R]) -> Callable[P, R]:
    """Keep a call's options and its model's keyword arguments from mixing.

    A keyword that is both an option and a parameter of the model's ``forward`` is an error, unless the call says which
    keywords are the model's, in ``kwargs={...}``.
    """
    parameters = inspect.signature(function).parameters.values()
    options = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        if args and keywords.get("kwargs") is None and not isinstance(args[0], ExportedProgram):
            for name in parameters_of(args[0]):
                if name in options and name in keywords:
                    raise UsageError(
                        f"'{name}' is both an option of fx_importer and a parameter of the model: pass the model's own "
                        f"keyword arguments in kwargs={{...}}, for example kwargs={{'{name}': ...}}; beside kwargs=, "
                        f"{name}= is the option"
                    )
        return function(*args, **keywords)

    return call


@_apart_from_the_model
def lower(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any] | Mapping[str, ExportedProgram],
    *args: Any,
    output_type: str | OutputType = OutputType.RAW,
    fx_importer: FxImporter | None = None,
    dynamic_shapes: Any = None,
    strict: bool = False,
    mutation: str | Mutation = Mutation.ERROR,
    experimental_support_mutation: bool = False,
    import_symbolic_shape_expressions: bool = False,
    runtime_asserts: bool = False,
    hooks: FxImporterHooks | None = None,
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    keep: Sequence[str | OpOverload | OpOverloadPacket] = (),
    extra: Mapping[Any, Callable[..., Any]] | None = None,
    func_name: str = "main",
    enable_graph_printing: bool = False,
    verbose: bool = False,
    enable_ir_printing: bool = False,
    backend_legal_ops: Sequence[str] | None = None,
    allow_non_finites: bool = True,
    contract: str | Contract = Contract.ERROR,
    unsupported: str | Unsupported = Unsupported.ERROR,
    narrow_integers: bool = False,
    tosa_target: str | TosaTarget | None = None,
    isolate: bool = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    dump_dir: str | os.PathLike[str] | None = None,
    dump_ir: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **model_kwargs: Any,
) -> Lowered:
    """Export ``f`` and lower it to ``output_type``, keeping the program and a record of the stages.

    Args:
        f: the model, a plain function, or an exported program (whose inputs were given when it was exported). Or
            several exported programs by name: a function each in one module, where they share weights and state.
        *args: example inputs.
        output_type: an `OutputType` or any spelling of one.
        fx_importer: an importer to use instead of a new one; its module is filled.
        dynamic_shapes: as `torch.export.export` takes it.
        strict: as `torch.export.export` takes it.
        mutation: what becomes of state that the program mutates, a `Mutation` or its name.
        experimental_support_mutation: torch-mlir's name for ``mutation="mutable"``.
        import_symbolic_shape_expressions: emit ``torch.symbolic_int`` and ``torch.bind_symbolic_shape``, where the
            output type is of the torch dialect: no other can hold them.
        runtime_asserts: emit assertions: what the program asserts of its values, and what export took for granted of
            its inputs' sizes. Not for TOSA and StableHLO, which have none.
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
        narrow_integers: for TOSA: no integers of 64 bits, arguments and results included.
        tosa_target: what TOSA is to be valid for, a `TosaTarget` or its text; without it, TOSA 1.1 (draft) with most
            extensions, or TOSA 1.0 with narrow integers.
        isolate: run the passes in a process of their own, where an abort, or a limit that is reached, is a
            `CrashedError` with a report.
        time_limit: seconds that each stage of passes may take, with ``isolate``.
        memory_limit: bytes that the process may have to itself, weights that it maps apart, with ``isolate``.
        dump_dir: where reports of failures and dumps go, each in a new directory; without it, where
            ``FX_IMPORTER_DUMP_DIR`` says, or temporary files are.
        dump_ir: a regular expression: what is before and after stages of such names is written down, weights elided,
            with the time of each stage.
        kwargs: the model's keyword arguments, for names that are options here too.
        **model_kwargs: the model's keyword arguments.

    Raises:
        UsageError: for an option or an input that is not one.
        ExportError: if torch.export cannot capture ``f``.
        UnsupportedProgramError: listing everything in the program that cannot be imported.
        StageFailed: if a stage of the lowering fails; it names a directory that reproduces the failure.
        CrashedError: if a stage ends its own process; likewise.
    """
    if fx_importer is not None and hooks is not None:
        raise UsageError("pass the hooks to the FxImporter, or pass hooks= without fx_importer=")
    options = Options(
        output_type=OutputType.get(output_type),
        export=ExportOptions(dynamic_shapes, strict),
        importing=ImportOptions(
            func_name=func_name,
            mutation=Mutation.MUTABLE if experimental_support_mutation else Mutation.get(mutation),
            symbolic_shapes=import_symbolic_shape_expressions,
            runtime_asserts=runtime_asserts,
        ),
        lowering=LoweringOptions(
            tuple(backend_legal_ops or ()),
            allow_non_finites,
            Contract.get(contract),
            Unsupported.get(unsupported),
            narrow_integers,
            None if tosa_target is None else TosaTarget.get(tosa_target),
        ),
        printing=PrintOptions(graph=enable_graph_printing, stages=verbose, passes=enable_ir_printing),
        decompositions=_decomposing(decomposition_table, keep, extra),
        running=_running(isolate, time_limit, memory_limit, dump_dir, dump_ir),
    )
    inputs = {**model_kwargs, **(kwargs or {})}
    importer = fx_importer or FxImporter(hooks=hooks)
    if isinstance(f, Mapping):
        return compile_programs(_entry_points(f, args, inputs, func_name), importer, options)
    if not isinstance(f, ExportedProgram):
        check_inputs(f, args, inputs, options=inspect.signature(lower).parameters)
    return compile_programs({func_name: (f, args, inputs)}, importer, options)


def _running(
    isolate: bool,
    time_limit: float | None,
    memory_limit: int | None,
    dump_dir: str | os.PathLike[str] | None,
    dump_ir: str | None,
) -> RunOptions:
    return RunOptions(isolate, time_limit, memory_limit, os.fspath(dump_dir) if dump_dir else None, dump_ir)


def _decomposing(
    table: Mapping[Any, Callable[..., Any]] | None,
    keep: Sequence[str | OpOverload | OpOverloadPacket],
    extra: Mapping[Any, Callable[..., Any]] | None,
) -> DecompositionOptions:
    if isinstance(keep, str):
        raise UsageError(f"keep is a list of operators: keep=[{keep!r}]")
    return DecompositionOptions(table, tuple(map(str, keep)), dict(extra or {}))


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


def _returning_the_module(function: Callable[P, Lowered]) -> Callable[P, ir.Module]:
    """Return ``function`` with only the module of what it returns."""

    @functools.wraps(function)
    def export_and_import(*args: P.args, **keywords: P.kwargs) -> ir.Module:
        return function(*args, **keywords).module

    export_and_import.__name__ = export_and_import.__qualname__ = "export_and_import"
    export_and_import.__doc__ = (
        "Export ``f`` and lower it to ``output_type``: `lower`, for the module alone.\n"
        + (inspect.getdoc(function) or "").partition("\n")[2]
    )
    return export_and_import


export_and_import = _returning_the_module(lower)


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
    printing = PrintOptions(graph=enable_graph_printing, stages=verbose, passes=enable_ir_printing)
    if printing.graph:
        gm.print_readable()
    options = Options(
        output_type=OutputType.get(output_type),
        lowering=LoweringOptions(
            tuple(backend_legal_ops or ()),
            allow_non_finites,
            Contract.get(contract),
            narrow_integers=narrow_integers,
            tosa_target=None if tosa_target is None else TosaTarget.get(tosa_target),
        ),
        running=_running(isolate, time_limit, memory_limit, dump_dir, dump_ir),
    )
    target = TARGETS[options.output_type]
    pipeline = target.pipeline(options.lowering)
    trace = new_trace(options, ["legalize", "import", *(stage.name for stage in pipeline.stages)])
    run = stage_runner(importer.module, options.running)
    with trace.stage("legalize"):
        legal = legalize_graph(gm, target.dtypes)
    with trace.stage("import", importer.module):
        importer.import_graph_module(legal, func_name=model_name)
    run_pipeline(pipeline, importer.module, trace, run, printing)
    return importer.module

"""Export, decompose, canonicalize, import, lower: the one file that knows the order."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.export import ExportedProgram

from fx_importer.bindings import ir
from fx_importer.canonicalization import canonicalize, fold_constants, legalize, legalize_graph
from fx_importer.decompositions import Changes, decompose
from fx_importer.errors import UsageError
from fx_importer.execution import Backend, Caller, EagerBackend, backend_for, backend_named, default_for
from fx_importer.execution.artifact import Weights, artifact_of
from fx_importer.exporting import export_program
from fx_importer.exporting.inputs import check_inputs, parameters_of
from fx_importer.importing import FxImporter, FxImporterHooks
from fx_importer.importing.entry_points import shared_state
from fx_importer.importing.signature import mutated_state
from fx_importer.manifest import NARROW, Manifest
from fx_importer.options import (
    Contract,
    DecompositionOptions,
    ExportOptions,
    ImportOptions,
    LoweringOptions,
    Mutation,
    Options,
    PrintOptions,
    TosaTarget,
)
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, run_stage
from fx_importer.reports import write_report
from fx_importer.saving import ARTIFACT, check_writable, save_bytes, save_module
from fx_importer.targets import TARGETS
from fx_importer.trace import Reporter, Trace
from fx_importer.verification import Divergence, Inputs, Tolerance, Verdict, bisect, example_inputs, verify

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Lowered:
    """A lowered program, or several in one module, and the record of how it came about."""

    programs: Mapping[str, ExportedProgram]
    """The programs, decomposed and canonical, by the names of their functions. What is imported may have other dtypes,
    where the output type needs it."""
    exported: Mapping[str, ExportedProgram]
    """The programs as they were exported, before anything was decomposed. They share the weights."""
    module: ir.Module
    manifest: Manifest
    """What the functions take and return, and what is state; ``manifest.to_json()`` is for other tools."""
    trace: Trace
    options: Options
    _relower: Callable[[Any, Sequence[Any], DecompositionOptions | None], Lowered] = field(repr=False)
    """Lowers another model or program as this one was; with other decompositions, if there are any."""

    @property
    def program(self) -> ExportedProgram:
        """The program, where there is one; the first where there are several."""
        return next(iter(self.programs.values()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the module: text for ``.mlir``, bytecode for ``.mlirbc``, `save_artifact` for ``.stablehlo``.

        Raises `UsageError` if it cannot be.
        """
        if Path(path).suffix == ARTIFACT:
            self.save_artifact(path)
        else:
            save_module(self.module, path)

    def save_artifact(
        self, path: str | os.PathLike[str], version: str = "week-12", weights: Weights = "inline"
    ) -> None:
        """Write StableHLO as a portable artifact, which other releases of StableHLO, and XLA, read.

        Args:
            path: the file; its usual suffix is ``.stablehlo``.
            version: the release of StableHLO that it is for, and all later ones: ``"1.0.0"``; or ``"current"``,
                ``"week-4"``, ``"week-12"``, ``"minimum"``, as StableHLO names the releases that can be written for.
            weights: ``"inline"``; or ``"arguments"``: each is a last argument of the functions that read it, and the
                argument's attribute ``fx_importer.constant`` is its name in the manifest.

        Raises:
            UsageError: if the module is not StableHLO, there is no such version, or the file cannot be written.
        """
        if self.options.output_type is not OutputType.STABLEHLO:
            kind = self.options.output_type.value
            raise UsageError(f"a portable artifact holds StableHLO, but the module is {kind}: lower to 'stablehlo'")
        check_writable(path, module=False)
        save_bytes(artifact_of(self.module, version, weights), path)

    def caller(self, state: Mapping[str, torch.Tensor] | None = None, backend: str | Backend | None = None) -> Caller:
        """Return the module's functions, ready to run on ``backend``, with a state of their own.

        Args:
            state: what it is to begin with; without it, what the programs were exported with.
            backend: a name, of `BACKENDS` or ``"eager"`` for the programs themselves, or one of your own; without it,
                the output type's: the JIT, StableHLO's interpreter, TOSA's reference model.

        Raises:
            NotInstalledError: naming the extra that brings the backend.
            UsageError: for what the backend cannot run, or if a part of the state is missing.
        """
        if backend is None:
            backend = backend_for(self.options.output_type)
        elif isinstance(backend, str):
            eager = backend == "eager"
            backend = EagerBackend(self.programs, self.manifest) if eager else backend_named(backend)
        loaded = {name: backend.load(self.module, name) for name in self.manifest.functions}
        return Caller(self.manifest, loaded, self.initial_state() if state is None else state)

    def initial_state(self) -> dict[str, torch.Tensor]:
        """Return the state that the programs were exported with, by its name in the state dict."""
        return {
            name: tensor
            for program in self.programs.values()
            for name, tensor in {**program.constants, **program.state_dict}.items()
            if name in self.manifest.state
        }

    @functools.cached_property
    def _caller(self) -> Caller:
        return self.caller()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module on the output type's backend: takes what the model takes, returns what it returns.

        The first call compiles. A model that mutates state does so here too, from one call to the next; `caller` makes
        one that starts afresh, runs on other backends, and has the functions by name where there are several.

        Raises:
            NotInstalledError: naming the extra that brings the backend.
            UsageError: for inputs that the program was not exported for, or an output type that has no backend.
        """
        return self._caller(*args, **kwargs)

    def verify(
        self,
        *args: Any,
        inputs: Sequence[Inputs] = (),
        backends: Sequence[str | Backend] | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        isolate: bool = True,
        **kwargs: Any,
    ) -> Verdict:
        """Run the programs as they were exported, in PyTorch, and the module on backends, and compare all results.

        Outputs, new state, gradients and inputs that are written to are compared, as `compare` does it. State begins
        afresh for each backend, and is kept from one input set to the next.

        Args:
            *args: what the model takes. With no inputs at all, what the programs were exported with.
            inputs: several input sets instead, or those of other functions than the only one.
            backends: names or backends of your own. Without it, all that run the output type and are installed; the
                output type's own has to be.
            rtol: instead of the dtype's own, in ``|a - e| <= rtol * |e| + atol``.
            atol: the same. By default it goes with the largest magnitude of the output: see `Tolerance`.
            isolate: whether what may end its process gets one of its own. It takes some seconds to start; all input
                sets and backends share it. Backends of your own run in this one.
            **kwargs: the model's keyword arguments.

        Raises:
            UsageError: for inputs that the programs were not exported for, a name that is no backend, or an output type
                that nothing runs.
        """
        if (args or kwargs) and inputs:
            raise UsageError("pass one input set as the model takes it, or several in inputs=[Inputs(...), ...]")
        sets = [Inputs(args, kwargs)] if args or kwargs else inputs
        return verify(self, sets, backends, Tolerance(rtol, atol), isolate)

    def bisect(
        self,
        *args: Any,
        inputs: Inputs | None = None,
        backend: str | Backend | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        isolate: bool = True,
        **kwargs: Any,
    ) -> Divergence | None:
        """Find the first operation of the exported program whose value differs on ``backend``; None if all agrees.

        The program is lowered again, with its values on the way as outputs; what differs is then lowered alone. A
        script that shows the operation without the model is written to a new directory. State is as it was exported.

        Args:
            *args: what the model takes. With no inputs at all, what the program was exported with.
            inputs: the inputs of another function than the only one, instead.
            backend: a name or a backend of your own; without it, the output type's. ``"eager"`` finds wrong
                decompositions.
            rtol: as for `verify`.
            atol: as for `verify`.
            isolate: as for `verify`.
            **kwargs: the model's keyword arguments.

        Raises:
            UsageError: if the program does not run there, so that there are no values; and as `verify` does.
        """
        if (args or kwargs) and inputs:
            raise UsageError("pass inputs as the model takes them, or inputs=Inputs(...)")
        if not inputs:
            inputs = Inputs(args, kwargs) if args or kwargs else example_inputs(self.exported)[0]
        backend = default_for(self.options.output_type) if backend is None else backend
        return bisect(self, self._relower, inputs, backend, Tolerance(rtol, atol), isolate)


Call = tuple[Any, Sequence[Any], Mapping[str, Any]]
"""A model and what it is called with. An exported program needs no inputs."""


def compile_programs(
    calls: Mapping[str, Call], importer: FxImporter, options: Options, reporter: Reporter | None = write_report
) -> Lowered:
    """Carry models to functions of one module, keeping a record of every stage."""
    Changes.of(options.decompositions.keep, options.decompositions.extra)  # raises before any work
    target = TARGETS[options.output_type]
    importing = target.importing(options.importing)
    trace = Trace(reporter=reporter)
    with trace.stage("export"):
        exported = {name: export_program(*call, options.export) for name, call in calls.items()}
    programs = dict(exported)
    with trace.stage("decompose"):
        for name, program in programs.items():
            programs[name] = decompose(program, target.table(options, program))
    with trace.stage("canonicalize"):
        asserts = importing.runtime_asserts
        programs = {name: canonicalize(program, assertions=asserts) for name, program in programs.items()}
    if options.printing.graph:
        for program in programs.values():
            program.graph_module.print_readable()
    if options.importing.mutation is Mutation.MUTABLE and not target.in_place:
        _refuse_in_place(programs, options.output_type)
    with trace.stage("legalize"):
        legal = {name: legalize(program, target.dtypes) for name, program in programs.items()}
    with trace.stage("import"):
        state = shared_state(legal)
        if target.folds:
            legal = {name: fold_constants(program, state) for name, program in legal.items()}
        for name, program in legal.items():
            named = replace(importing, func_name=name)
            importer.import_exported_program(program, named, state, tensors_only=target.tensors_only)
    run_pipeline(target.pipeline(options.lowering), importer.module, trace, options.printing)
    manifest = Manifest(
        options.output_type.value,
        {name: importer.functions[name] for name in programs},
        {name: held for function in programs for name, held in importer.state[function].items()},
        {name: held for function in programs for name, held in importer.constants[function].items()},
    )
    if options.lowering.narrow_integers and target.narrows:
        manifest = manifest.passing(NARROW)
    relower = functools.partial(_relower, importer, options)
    return Lowered(programs, exported, importer.module, manifest, trace, options, relower)


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
        decompositions=decompositions or options.decompositions,
    )
    new = FxImporter(hooks=importer.hooks, handlers=importer.handlers)
    return compile_programs({options.importing.func_name: (f, args, {})}, new, options, reporter=None)


def _refuse_in_place(programs: Mapping[str, ExportedProgram], output_type: OutputType) -> None:
    for program in programs.values():
        signature = program.graph_signature
        mutated = [*mutated_state(program), *signature.user_inputs_to_mutate.values()]
        if mutated:
            raise UsageError(
                f"{output_type.value} has values and no memory to overwrite, and the program mutates "
                f"{', '.join(map(repr, sorted(mutated)))}: pass mutation='functional'"
            )


def run_pipeline(pipeline: Pipeline, module: ir.Module, trace: Trace, printing: PrintOptions) -> None:
    """Run the stages of ``pipeline`` on ``module`` in place."""
    for stage in pipeline.stages:
        with trace.stage(stage.name, module, pipeline=str(stage)):
            run_stage(stage, module, print_passes=printing.passes)
        if printing.stages:
            print(f"// ----- after stage '{stage.name}'")
            # Local scope leaves out the resource section, which would spell every weight in hexadecimal.
            print(module.operation.get_asm(large_elements_limit=16, use_local_scope=True))


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
    narrow_integers: bool = False,
    tosa_target: str | TosaTarget | None = None,
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
        narrow_integers: for TOSA: no integers of 64 bits, arguments and results included.
        tosa_target: what TOSA is to be valid for, a `TosaTarget` or its text; without it, TOSA 1.1 (draft) with most
            extensions, or TOSA 1.0 with narrow integers.
        kwargs: the model's keyword arguments, for names that are options here too.
        **model_kwargs: the model's keyword arguments.

    Raises:
        UsageError: for an option or an input that is not one.
        ExportError: if torch.export cannot capture ``f``.
        UnsupportedProgramError: listing everything in the program that cannot be imported.
        StageFailed: if a stage of the lowering fails; it names a directory that reproduces the failure.
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
            narrow_integers,
            None if tosa_target is None else TosaTarget.get(tosa_target),
        ),
        printing=PrintOptions(graph=enable_graph_printing, stages=verbose, passes=enable_ir_printing),
        decompositions=_decomposing(decomposition_table, keep, extra),
    )
    inputs = {**model_kwargs, **(kwargs or {})}
    importer = fx_importer or FxImporter(hooks=hooks)
    if isinstance(f, Mapping):
        return compile_programs(_entry_points(f, args, inputs, func_name), importer, options)
    if not isinstance(f, ExportedProgram):
        check_inputs(f, args, inputs, options=inspect.signature(lower).parameters)
    return compile_programs({func_name: (f, args, inputs)}, importer, options)


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
) -> ir.Module:
    """Import a graph of ATen operators whose placeholders are all its inputs, and lower it to ``output_type``.

    The graph is taken as it is: nothing is decomposed. Its nodes carry example values (``node.meta["val"]``).

    Raises:
        UnsupportedProgramError: listing everything in the graph that cannot be imported.
        StageFailed: if a stage of the lowering fails.
    """
    importer = fx_importer or FxImporter(hooks=hooks)
    printing = PrintOptions(graph=enable_graph_printing, stages=verbose, passes=enable_ir_printing)
    if printing.graph:
        gm.print_readable()
    trace = Trace(reporter=write_report)
    target = TARGETS[OutputType.get(output_type)]
    with trace.stage("legalize"):
        legal = legalize_graph(gm, target.dtypes)
    with trace.stage("import"):
        importer.import_graph_module(legal, func_name=model_name)
    lowering = LoweringOptions(
        tuple(backend_legal_ops or ()),
        allow_non_finites,
        Contract.get(contract),
        narrow_integers,
        None if tosa_target is None else TosaTarget.get(tosa_target),
    )
    run_pipeline(target.pipeline(lowering), importer.module, trace, printing)
    return importer.module

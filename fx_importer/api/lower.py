"""`lower` and related public functions, which convert their keywords to options and call the driver.

Importing the file loads neither torch nor the compiler: functions import what they call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fx_importer.api.keywords import documented, options_of, signature_with_keywords, split_keywords
from fx_importer.diagnostics.installed_packages.explained_imports import imports_explained
from fx_importer.errors import UsageError
from fx_importer.options import KEYWORDS, Contract, Keywords, Mutation, Options, TosaTarget
from fx_importer.output_types import OutputType

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload, OpOverloadPacket
    from torch.export import ExportedProgram
    from typing_extensions import Unpack

    from fx_importer.compiler.compilation import Call
    from fx_importer.importing import FxImporter, FxImporterHooks
    from fx_importer.mlir.bindings import ir
    from fx_importer.pipelines import Change
    from fx_importer.results.lowered import Lowered
    from fx_importer.verification import Divergence


def lower(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any] | Mapping[str, ExportedProgram],
    *args: Any,
    **keywords: Unpack[Keywords],
) -> Lowered:
    """Export ``f`` and lower it to ``output_type``. Return the module with its program and manifest.

    Args:
        f: the model, a plain function, or an exported program (which has its own example inputs); or several exported
            programs by name, which become functions of one module that share weights and state.
        *args: example inputs.
        **keywords: options, which `help` and docs/options.md list, and the model's own keyword arguments.

    Raises:
        UsageError: for an option or an input that is not one.
        ExportError: if torch.export cannot capture ``f``.
        UnsupportedProgramError: listing everything in the program that cannot be imported.
        StageFailed: if a stage of the lowering fails; it names a directory that reproduces the failure.
        CrashedError: if a stage ends its own process; likewise.
    """
    with imports_explained():
        from torch.export import ExportedProgram

        from fx_importer.compiler.compile_programs import compile_programs
        from fx_importer.diagnostics.progress import reporting_progress
        from fx_importer.frontend.example_inputs import check_inputs, warn_of_misspelt
        from fx_importer.importing import FxImporter

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
            check_inputs(f, args, inputs, options=tuple(KEYWORDS))
            warn_of_misspelt(f, keywords.keys() - KEYWORDS.keys(), tuple(KEYWORDS))
        calls = {func_name: (f, args, inputs)}
    with reporting_progress(ours.get("progress", False)):
        ours = importer or FxImporter(hooks=hooks)
        return compile_programs(calls, ours, options, keep_importer=importer is not None)


def export_and_import(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any] | Mapping[str, ExportedProgram],
    *args: Any,
    **keywords: Unpack[Keywords],
) -> ir.Module:
    """Export ``f`` and lower it to ``output_type``; return only the module.

    Takes the same arguments as `lower`, and raises the same errors.
    """
    return lower(f, *args, **keywords).module


for _function in (lower, export_and_import):
    setattr(_function, "__signature__", signature_with_keywords(_function))  # noqa: B010 - functions have no such field
lower.__doc__ = documented(lower.__doc__ or "        **keywords:")  # python -OO leaves none


def _entry_points(
    programs: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], func_name: str
) -> dict[str, Call]:
    """Return the calls of several programs, given by name. Raises `UsageError` for anything else."""
    from torch.export import ExportedProgram

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
    """Run ``f`` in PyTorch before and after decomposition, and find the first operation with a wrong rule.

    Args:
        f: the model, a plain function, or an exported program (which is called with its own example inputs).
        *args: inputs.
        decomposition_table: the table; by default RAW's, which decomposes as little as possible.
        keep: as `lower` takes it.
        extra: as `lower` takes it.
        dynamic_shapes: as `torch.export.export` takes it.
        rtol: as for `Lowered.verify`.
        atol: as for `Lowered.verify`.
        kwargs: the model's keyword arguments.

    Returns:
        None if there is no difference.

    Raises:
        FxImporterError: as `lower` does.
    """
    from fx_importer.engines.engine_table import REFERENCE_ENGINE

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
    return lowered.bisect(backend=REFERENCE_ENGINE, rtol=rtol, atol=atol)


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
    narrow_floats: bool = False,
    tosa_target: str | TosaTarget | None = None,
    pipeline: Change | None = None,
    isolate: bool = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    dump_dir: str | os.PathLike[str] | None = None,
    dump_ir: str | None = None,
) -> ir.Module:
    """Import a graph of ATen operators whose placeholders are all its inputs, and lower it to ``output_type``.

    The graph is not decomposed. Its nodes have example values (``node.meta["val"]``), or static ``tensor_meta``.
    `lower` describes the options.

    Raises:
        UnsupportedProgramError: listing everything in the graph that cannot be imported.
        StageFailed: if a stage of the lowering fails.
        CrashedError: if a stage ends its own process.
    """
    from fx_importer.importing import FxImporter

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
        "narrow_floats": narrow_floats,
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
    from fx_importer.compiler.compilation import Compilation
    from fx_importer.compiler.stages import admit, new_trace, run_pipeline
    from fx_importer.fx_graph.programs import add_examples
    from fx_importer.fx_passes.legalization import legalize_graph
    from fx_importer.pipelines.isolated_runner import stage_runner

    if options.printing.graph:
        graph.print_readable()
    add_examples(graph.graph)
    compilation = Compilation.of(options)
    pipeline = compilation.pipeline
    trace = new_trace(options, ["fx_passes", "importing", *(stage.name for stage in pipeline.stages)])
    admit(options.output_type, importer.module.context)
    run = stage_runner(importer.module, options.running)
    with trace.stage("fx_passes"):
        legal = legalize_graph(graph, compilation.target.dtypes)
    with trace.stage("importing", importer.module):
        importer.import_graph_module(legal, func_name=name)
    run_pipeline(pipeline, importer.module, trace, run, options.printing)
    return importer.module

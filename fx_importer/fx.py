"""The names of ``torch_mlir.fx``, for code that is written for it.

The torch dialect, raw or in backend form, has torch-mlir's own text: its decompositions, importer and pipeline write
it. What these refuse, and other output types, have the IR of `fx_importer.lower`, without names of arguments.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch.export import ExportedProgram
from torch_mlir.fx import FxImportOptions

from fx_importer import importing
from fx_importer.api import lower as api
from fx_importer.api.keywords import options_of, split_keywords
from fx_importer.compiler_utils import (
    BackendLoweringOptions,
    OutputType,
    TorchMlirCompilerError,
    lower_mlir_module,
    run_pipeline_with_repro_report,
)
from fx_importer.diagnostics.causes import Place
from fx_importer.errors import (
    ExportError,
    FrozenStateWarning,
    MutatedStateError,
    UnsupportedNode,
    UnsupportedProgramError,
    UsageError,
)
from fx_importer.extras.fx_decomp_util import get_decomposition_table
from fx_importer.extras.fx_importer import FxImporter, FxImporterHooks
from fx_importer.frontend.example_inputs import check_inputs
from fx_importer.frontend.export import export_program
from fx_importer.frontend.torch_patches import FUNCTIONALIZED_VIEWS, patched, warnings_filtered
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.retracing import run_decompositions
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.types import short_text
from fx_importer.mlir.walk import operations
from fx_importer.options import KEYWORDS, Capture, Contract, Mutation, Options
from fx_importer.targets import target_for

__all__ = [
    "BackendLoweringOptions",
    "FxImportOptions",
    "FxImporter",
    "FxImporterHooks",
    "OutputType",
    "TorchMlirCompilerError",
    "export_and_import",
    "get_decomposition_table",
    "lower_mlir_module",
    "run_pipeline_with_repro_report",
    "stateless_fx_import",
]


def export_and_import(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any],
    *args: Any,
    output_type: str | Enum | OutputType = OutputType.RAW,
    fx_importer: FxImporter | importing.FxImporter | None = None,
    dynamic_shapes: Any = None,
    strict: bool = False,
    experimental_support_mutation: bool = False,
    import_symbolic_shape_expressions: bool = False,
    hooks: Any = None,
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    func_name: str = "main",
    enable_graph_printing: bool = False,
    verbose: bool = False,
    enable_ir_printing: bool = False,
    backend_legal_ops: Sequence[str] | None = None,
    allow_non_finites: bool = True,
    **kwargs: Any,
) -> ir.Module:
    """Export ``f`` and lower it to ``output_type``. `fx_importer.lower` describes the options.

    Code that depends on the values of tensors is refused, as ``torch_mlir.fx`` does, unless ``capture`` is given.

    ``kwargs`` are the model's own; with options of `fx_importer.lower` among them, that function makes the module.

    Raises:
        FxImporterError: as `fx_importer.lower` does.
    """
    options: dict[str, Any] = {
        "output_type": output_type,
        "dynamic_shapes": dynamic_shapes,
        "strict": strict,
        "experimental_support_mutation": experimental_support_mutation,
        "import_symbolic_shape_expressions": import_symbolic_shape_expressions,
        "decomposition_table": decomposition_table,
        "func_name": func_name,
        "enable_graph_printing": enable_graph_printing,
        "verbose": verbose,
        "enable_ir_printing": enable_ir_printing,
        "backend_legal_ops": backend_legal_ops,
        "allow_non_finites": allow_non_finites,
        "contract": Contract.WARN,
        "capture": Capture.EXPORT,
    }
    more, inputs = split_keywords(f, kwargs)
    asked = options_of(options)
    ours = isinstance(fx_importer, importing.FxImporter)

    def by_us() -> ir.Module:
        importer = {"fx_importer": fx_importer} if ours else {"hooks": hooks}
        keywords: dict[str, Any] = {**options, **importer, **kwargs}
        return api.export_and_import(f, *args, **keywords)

    def import_into(importer: FxImporter) -> None:
        if not isinstance(f, ExportedProgram):
            check_inputs(f, args, inputs, options=tuple(KEYWORDS))
        with warnings_filtered("ignore", ".* is in training mode"):  # torch-mlir has no such warning
            program = export_program(f, args, inputs, asked.export)
        with _own_strides_refused(program.graph):
            _import_program(program, importer, asked)

    theirs = fx_importer if isinstance(fx_importer, FxImporter) else None
    return _lowered(asked, theirs, hooks, import_into, by_us, by_us_only=ours or bool(more))


def stateless_fx_import(
    gm: torch.fx.GraphModule,
    output_type: str | Enum | OutputType = OutputType.RAW,
    fx_importer: FxImporter | importing.FxImporter | None = None,
    hooks: Any = None,
    model_name: str = "main",
    enable_graph_printing: bool = False,
    verbose: bool = False,
    enable_ir_printing: bool = False,
    backend_legal_ops: Sequence[str] | None = None,
    allow_non_finites: bool = True,
    **options: Any,
) -> ir.Module:
    """Import a graph of ATen operators whose placeholders are all its inputs, and lower it to ``output_type``.

    With further ``options`` of `fx_importer.stateless_fx_import`, that function makes the module.

    Raises:
        FxImporterError: as `fx_importer.stateless_fx_import` does.
    """
    keyword_options: dict[str, Any] = {
        "output_type": output_type,
        "enable_graph_printing": enable_graph_printing,
        "verbose": verbose,
        "enable_ir_printing": enable_ir_printing,
        "backend_legal_ops": backend_legal_ops,
        "allow_non_finites": allow_non_finites,
        "contract": Contract.WARN,
    }
    ours = isinstance(fx_importer, importing.FxImporter)

    def by_us() -> ir.Module:
        importer = {"fx_importer": fx_importer} if ours else {"hooks": hooks}
        keywords: dict[str, Any] = {**keyword_options, **importer, **options}
        return api.stateless_fx_import(gm, model_name=model_name, **keywords)

    def import_into(importer: FxImporter) -> None:
        if enable_graph_printing:
            gm.print_readable()
        with _own_strides_refused(gm.graph):
            importer.import_stateless_graph(gm.graph, func_name=model_name)

    asked = options_of(keyword_options)
    theirs = fx_importer if isinstance(fx_importer, FxImporter) else None
    return _lowered(asked, theirs, hooks, import_into, by_us, by_us_only=ours or bool(options))


def _import_program(program: ExportedProgram, importer: FxImporter, options: Options) -> None:
    """Decompose and import ``program`` as torch-mlir does. Warns of state that is frozen."""
    table = options.decompositions.table
    if table is None:
        table = get_decomposition_table()
    if table:
        with patched({FUNCTIONALIZED_VIEWS: False} if FUNCTIONALIZED_VIEWS.exists() else {}):
            program = run_decompositions(program, dict(table), keep_composites=True)
    if options.printing.graph:
        program.graph_module.print_readable()
    name, shapes = options.importing.func_name, options.importing.symbolic_shapes
    if options.importing.mutation is Mutation.MUTABLE:
        importer.import_program(program, func_name=name, import_symbolic_shape_expressions=shapes)
        return
    if written := sorted(set(program.graph_signature.buffers_to_mutate.values())):
        warnings.warn(
            f"the program writes to the buffers {', '.join(written)}, and the module reads their values of now in each "
            "call: its first results are the new values. Pass experimental_support_mutation=True to overwrite them",
            FrozenStateWarning,
            stacklevel=5,
        )
    importer.import_frozen_program(program, func_name=name, import_symbolic_shape_expressions=shapes)


@contextmanager
def _own_strides_refused(graph: torch.fx.Graph) -> Iterator[None]:
    """Raise torch-mlir's refusal of an ``as_strided`` of the model, and not of a decomposition, as `UsageError`."""
    own = graph.find_nodes(op="call_function", target=aten.as_strided.default)
    try:
        yield
    except ValueError as error:
        if own and "as_strided" in str(error):
            raise UsageError(str(error)) from error
        raise


def _lowered(
    options: Options,
    importer_given: FxImporter | None,
    hooks: Any,
    import_into: Callable[[FxImporter], None],
    by_us: Callable[[], ir.Module],
    *,
    by_us_only: bool,
) -> ir.Module:
    """Return the lowered module of torch-mlir's importer, or the module of `fx_importer.lower`: ``by_us()``."""
    kind = options.output_type
    if by_us_only:
        return _without_names(by_us())
    if importer_given is None and not _is_torch_dialect(kind):
        try:
            return _without_names(by_us())
        except MutatedStateError:
            pass  # torch-mlir's importer takes the state as constants, and returns new values
    importer = importer_given or FxImporter(hooks=hooks)
    legal = FxImportOptions(backend_legal_ops=list(options.lowering.backend_legal_ops))
    finite = BackendLoweringOptions(options.lowering.allow_non_finites)
    printing = options.printing
    again = importer_given is None and hooks is None
    try:
        import_into(importer)
        return _module_lowering(
            printing.stages, printing.passes, kind, importer.module, legal, finite, report=not again
        )
    except (ExportError, UsageError, Warning):
        raise
    except Exception:
        if not again:
            raise  # a hook may have raised it
        return _without_names(by_us())


def _is_torch_dialect(kind: OutputType) -> bool:
    return kind.base is None and target_for(kind).symbolic_shapes


def _module_lowering(
    verbose: bool,
    enable_ir_printing: bool,
    output_type: OutputType,
    torch_mod: ir.Module,
    fx_import_options: FxImportOptions | None = None,
    backend_options: BackendLoweringOptions | None = None,
    *,
    report: bool = True,
) -> ir.Module:
    """Lower an imported module in place, first with torch-mlir's pipeline to the backend form; return it."""
    options = fx_import_options or FxImportOptions()
    if verbose:
        print("\n====================\nTorchFX IR")
        print(torch_mod)
    if not target_for(output_type).pipelines:
        return torch_mod
    _check_no_crash(torch_mod)
    legal = f"backend-legal-ops={','.join(options.backend_legal_ops)} " if options.backend_legal_ops else ""
    library = options.extra_library_file_name or ""
    run_pipeline_with_repro_report(
        torch_mod,
        "builtin.module(func.func(torch-match-quantized-custom-ops),"
        f"torchdynamo-export-to-torch-backend-pipeline{{{legal}extra-library={library}}})",
        "Lowering TorchFX IR -> Torch Backend IR",
        enable_ir_printing,
        report=report,
    )
    return lower_mlir_module(verbose, output_type, torch_mod, backend_options)


def _check_no_crash(module: ir.Module) -> None:
    """Raise `UnsupportedProgramError` for calls on which torch-mlir's pipeline ends the process."""
    calls = [op for op in operations(module.operation, ("torch.aten.nonzero",)) if _is_scalar(op.operands[0])]
    if calls:
        reason = "its tensor has rank 0: x.reshape(1).nonzero()[:, :0] is the same"
        unsupported = [UnsupportedNode("aten.nonzero", f"{reason}, {Place.of(op.location)}") for op in calls]
        raise UnsupportedProgramError("torch-mlir's pipeline to the backend form crashes at", unsupported)


def _is_scalar(value: ir.Value) -> bool:
    return short_text(value.type).endswith("[]")


def _without_names(module: ir.Module) -> ir.Module:
    """Remove the attributes of this package from the arguments and results of functions; return the module."""
    for function in module.body.operations:
        for key in {"arg_attrs", "res_attrs"} & set(function.attributes):
            kept = [
                {one.name: one.attr for one in ir.DictAttr(attributes) if not one.name.startswith("fx_importer.")}
                for attributes in ir.ArrayAttr(function.attributes[key])
            ]
            if any(kept):
                function.attributes[key] = ir.ArrayAttr.get(
                    [ir.DictAttr.get(attributes, module.context) for attributes in kept]
                )
            else:
                del function.attributes[key]
    return module

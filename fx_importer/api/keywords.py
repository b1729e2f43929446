"""Keywords of `lower`: their types, and their conversion to `Options`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch._ops import OpOverload, OpOverloadPacket
from torch.export import ExportedProgram

from fx_importer.distributed import Mesh, Plan
from fx_importer.errors import UsageError
from fx_importer.frontend.example_inputs import parameters_of
from fx_importer.lowerings import listed
from fx_importer.options import (
    Contract,
    DecompositionOptions,
    ExportOptions,
    ImportOptions,
    LoweringOptions,
    Mutation,
    Options,
    PrintOptions,
    Quantized,
    RunOptions,
    TosaTarget,
    Unsupported,
    Weights,
)
from fx_importer.output_types import OutputType

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from typing_extensions import TypedDict

    from fx_importer.diagnostics.progress import ProgressCallback
    from fx_importer.importing import FxImporter, FxImporterHooks
    from fx_importer.lowerings import LoweringRule, Lowerings
    from fx_importer.pipelines import Change

    class _ModelKeywords(TypedDict, total=False, extra_items=Any):
        """Any keyword: those that are not ours are the model's."""

else:
    from typing import TypedDict

    class _ModelKeywords(TypedDict, total=False):
        """Any keyword: those that are not ours are the model's."""


class Keywords(_ModelKeywords, total=False):
    """The keywords of `lower` and `export_and_import`, in addition to the model's own. `lower` documents them."""

    output_type: str | OutputType
    options: Options | None
    fx_importer: FxImporter | None
    dynamic_shapes: Any
    strict: bool
    quantized: str | Quantized
    mutation: str | Mutation
    weights: str | Weights
    experimental_support_mutation: bool
    import_symbolic_shape_expressions: bool
    runtime_asserts: bool
    outline_layers: bool
    input_names: Sequence[str]
    output_names: Sequence[str]
    mesh: str | DeviceMesh | None
    plan: Mapping[str, Any] | str | Plan | None
    hooks: FxImporterHooks | None
    decomposition_table: Mapping[Any, Callable[..., Any]] | None
    keep: Sequence[str | OpOverload | OpOverloadPacket]
    extra: Mapping[Any, Callable[..., Any]] | None
    func_name: str
    enable_graph_printing: bool
    verbose: bool
    enable_ir_printing: bool
    backend_legal_ops: Sequence[str] | None
    allow_non_finites: bool
    contract: str | Contract
    unsupported: str | Unsupported
    lowerings: LoweringRule | Lowerings | str | Iterable[LoweringRule | Lowerings | str]
    fallback: str | OutputType | Iterable[str | OutputType]
    narrow_integers: bool
    narrow_floats: bool
    tosa_target: str | TosaTarget | None
    pipeline: Change | None
    isolate: bool
    time_limit: float | None
    memory_limit: int | None
    dump_dir: str | os.PathLike[str] | None
    dump_ir: str | None
    progress: bool | ProgressCallback
    cache: bool | None
    kwargs: Mapping[str, Any] | None


KEYWORDS = tuple(Keywords.__annotations__)
"""The names of all keywords of `lower`."""

BESIDE_OPTIONS = frozenset(("options", "fx_importer", "hooks", "progress", "kwargs"))
"""The keywords that are not in `Options` and can be passed together with one."""


def signature_with_keywords(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function that takes `Keywords`, with each keyword listed, for `help`."""
    signature = inspect.signature(function)
    *positional, rest = signature.parameters.values()
    named = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=getattr(kind, "__forward_arg__", kind)
        )
        for name, kind in Keywords.__annotations__.items()
    ]
    return signature.replace(parameters=[*positional, *named, rest.replace(name="model_kwargs", annotation=Any)])


def split_keywords(f: Any, keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keywords of a call of `lower` into its own and those of the model ``f``.

    Raises:
        UsageError: for a keyword that is both, unless the call passes the model's keyword arguments in ``kwargs``.
    """
    ours = {name: value for name, value in keywords.items() if name in KEYWORDS}
    if ours.get("kwargs") is None and not isinstance(f, ExportedProgram):
        for name in parameters_of(f):
            if name in ours:
                raise UsageError(
                    f"'{name}' is both an option of fx_importer and a parameter of the model: pass the model's own "
                    f"keyword arguments in kwargs={{...}}, for example kwargs={{'{name}': ...}}; beside kwargs=, "
                    f"{name}= is the option"
                )
    rest = {name: value for name, value in keywords.items() if name not in KEYWORDS}
    return ours, {**rest, **(ours.get("kwargs") or {})}


def options_of(keywords: Mapping[str, Any]) -> Options:
    """Return the options given by keywords of `lower`, or by ``options``.

    Raises:
        UsageError: for an invalid value, or for keywords that ``options`` holds too.
    """
    if (whole := keywords.get("options")) is not None:
        if not isinstance(whole, Options):
            raise UsageError(f"options={whole!r} is of type {type(whole).__name__}: pass fx_importer.options.Options")
        if twice := [name for name in keywords if name not in BESIDE_OPTIONS]:
            raise UsageError(
                f"options= holds all options, but {', '.join(map(repr, twice))} {'is' if len(twice) == 1 else 'are'} "
                "passed beside it: set them in the Options, for example with dataclasses.replace, or pass only keywords"
            )
        return whole
    return Options(
        output_type=OutputType.get(keywords.get("output_type", OutputType.RAW)),
        export=ExportOptions(
            keywords.get("dynamic_shapes"),
            keywords.get("strict", False),
            Quantized.get(keywords.get("quantized", Quantized.FLOAT)),
        ),
        decompositions=_decomposition_options(keywords),
        importing=_import_options(keywords),
        lowering=_lowering_options(keywords),
        printing=PrintOptions(
            graph=keywords.get("enable_graph_printing", False),
            stages=keywords.get("verbose", False),
            passes=keywords.get("enable_ir_printing", False),
        ),
        running=_run_options(keywords),
    )


def _decomposition_options(keywords: Mapping[str, Any]) -> DecompositionOptions:
    keep = keywords.get("keep", ())
    if isinstance(keep, str):
        raise UsageError(f"keep is a list of operators: keep=[{keep!r}]")
    table, extra = keywords.get("decomposition_table"), keywords.get("extra")
    return DecompositionOptions(table, tuple(map(str, keep)), dict(extra or {}))


def _import_options(keywords: Mapping[str, Any]) -> ImportOptions:
    mutable = keywords.get("experimental_support_mutation", False)
    mesh, plan = keywords.get("mesh"), keywords.get("plan")
    return ImportOptions(
        func_name=keywords.get("func_name", "main"),
        mutation=Mutation.MUTABLE if mutable else Mutation.get(keywords.get("mutation", Mutation.ERROR)),
        symbolic_shapes=keywords.get("import_symbolic_shape_expressions", False),
        runtime_asserts=keywords.get("runtime_asserts", False),
        weights=Weights.get(keywords.get("weights", Weights.INLINE)),
        outline_layers=keywords.get("outline_layers", False),
        input_names=_names(keywords, "input_names"),
        output_names=_names(keywords, "output_names"),
        mesh=None if mesh is None else str(Mesh.get(mesh)),
        plan=None if plan is None else str(Plan.get(plan, _mesh_of_plan(mesh))),
    )


def _names(keywords: Mapping[str, Any], keyword: str) -> tuple[str, ...]:
    given = keywords.get(keyword) or ()
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise UsageError(f"{keyword} is a list of names: {keyword}=['x', 'mask'], and not {given!r}")
    return tuple(given)


def _mesh_of_plan(mesh: Any) -> Mesh:
    if mesh is None:
        raise UsageError("plan= names axes of a mesh: pass it too, mesh='dp=2,tp=4'")
    return Mesh.get(mesh)


def _lowering_options(keywords: Mapping[str, Any]) -> LoweringOptions:
    tosa_target = keywords.get("tosa_target")
    return LoweringOptions(
        backend_legal_ops=tuple(keywords.get("backend_legal_ops") or ()),
        allow_non_finites=keywords.get("allow_non_finites", True),
        contract=Contract.get(keywords.get("contract", Contract.ERROR)),
        unsupported=Unsupported.get(keywords.get("unsupported", Unsupported.ERROR)),
        lowerings=listed(keywords.get("lowerings", ())),
        fallback=tuple(OutputType.get(each) for each in listed(keywords.get("fallback", ()))),
        narrow_integers=keywords.get("narrow_integers", False),
        narrow_floats=keywords.get("narrow_floats", False),
        tosa_target=None if tosa_target is None else TosaTarget.get(tosa_target),
        pipeline=keywords.get("pipeline"),
    )


def _run_options(keywords: Mapping[str, Any]) -> RunOptions:
    dump_dir = keywords.get("dump_dir")
    return RunOptions(
        isolate=keywords.get("isolate", False),
        time_limit=keywords.get("time_limit"),
        memory_limit=keywords.get("memory_limit"),
        dump_dir=os.fspath(dump_dir) if dump_dir else None,
        dump_ir=keywords.get("dump_ir"),
        cache=keywords.get("cache"),
    )

"""`load`: a module that was saved, as a `Lowered`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from fx_importer.calls.function_types import check_describes
from fx_importer.compiler.restored import restored
from fx_importer.compiler.stages import admit
from fx_importer.diagnostics.trace import Trace
from fx_importer.distributed import Plan
from fx_importer.errors import UsageError
from fx_importer.fx_graph.function_signature import Argument, Function
from fx_importer.manifest import NARROW, NARROW_FLOATS, Manifest
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_io import ARTIFACT, MODULES, manifest_path, read_module, take_manifest
from fx_importer.mlir.module_summary import spelled_type
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.options import ImportOptions, LoweringOptions, Mutation, Options, Weights
from fx_importer.output_types import OutputType
from fx_importer.results.lowered import Lowered
from fx_importer.targets import target_for
from fx_importer.weights import Source, read_weights
from fx_importer.weights.linking import read_manifest

Program = ExportedProgram | str | os.PathLike[str]


def load(
    path: str | os.PathLike[str],
    *,
    program: Program | Mapping[str, Program] | None = None,
    weights: Source | None = None,
    manifest: Manifest | str | os.PathLike[str] | None = None,
    options: Options | None = None,
    types: Sequence[type] = (),
    trust: bool = False,
) -> Lowered:
    """Read a module that `Lowered.save` or ``fx-importer import`` wrote, to run, verify and save it.

    Args:
        path: the ``.mlir`` or ``.mlirbc`` file.
        program: the exported program that was lowered, or the ``.pt2`` file of it; with several functions, by their
            names. `verify` and `bisect` compare with it, and it has the initial values of state.
        weights: for a module without its weights, as `link` takes them; by default the files that the manifest names,
            if it names any, else the weights of ``program``.
        manifest: the manifest or its file; by default the one in the file, or next to it.
        options: for `bisect`, the options of the lowering; by default those that the manifest shows.
        types: types of nested inputs and outputs, as `Manifest.from_json` takes them.
        trust: read the module in this process, take weights outside of its directory, and load a ``.pt2`` file that
            may run code.

    Raises:
        UsageError: if a file cannot be read, or program, weights or options do not fit the module.
    """
    path = Path(path)
    if path.suffix == ARTIFACT:
        raise UsageError(f"'{path}' is a portable artifact, for other tools: load reads .mlir and .mlirbc files")
    if path.suffix not in MODULES:
        raise UsageError(f"'{path}' is not a module that was saved: load reads .mlir and .mlirbc files")
    module = read_module(path) if trust else read_untrusted_module(path)
    loaded = _manifest(path, module, manifest, types)
    check_describes(loaded, module, f"the manifest of '{path}'")
    exported = {name: _program(entry, trust) for name, entry in _by_function(program, loaded).items()}
    _check_programs(exported, loaded)
    chosen = _checked_options(options, loaded) if options else _options_of(loaded)
    admit(chosen.output_type, module.context)
    lowered = restored(exported, module, loaded, chosen, None, Trace())
    if not loaded.weights:
        if weights is not None:
            raise UsageError(f"the weights are in '{path}': only a module without its weights takes others")
        return lowered
    if weights is None and (exported or not all(weight.file for weight in loaded.weights.values())):
        return lowered
    return replace(lowered, tensors=read_weights(loaded, weights, path.parent, trust=trust))


def manifest_of_file(path: Path, module: ir.Module, types: Sequence[type] = ()) -> Manifest | None:
    """Return the manifest in ``module``, which was read from ``path`` and loses it, or in the file next to it;
    None if there is none.

    Raises:
        UsageError: if it is not a manifest.
    """
    inside = take_manifest(module, path)
    if inside is None:
        return read_manifest(manifest_path(path), types) if manifest_path(path).is_file() else None
    try:
        return Manifest.from_json(inside, types)
    except UsageError as error:
        raise UsageError(f"'{path}': {error}") from None


def _manifest(
    path: Path, module: ir.Module, manifest: Manifest | str | os.PathLike[str] | None, types: Sequence[type]
) -> Manifest:
    if manifest is not None:
        take_manifest(module, path)
        return manifest if isinstance(manifest, Manifest) else read_manifest(manifest, types)
    beside = manifest_of_file(path, module, types)
    if beside is not None:
        return beside
    raise UsageError(
        f"'{path}' has no manifest, inside or beside it, which says what its functions take and return: save it again "
        "with this version, or pass the file that `import --manifest` wrote: manifest=..."
    )


def _by_function(program: Program | Mapping[str, Program] | None, manifest: Manifest) -> Mapping[str, Program]:
    if program is None:
        return {}
    names = list(manifest.functions)
    if not isinstance(program, Mapping):
        if len(names) > 1:
            raise UsageError(f"the module has {len(names)} functions: pass program={{{names[0]!r}: ..., ...}}")
        return {names[0]: program}
    if set(program) != set(names):
        there, offered = ", ".join(map(repr, names)), ", ".join(map(repr, program))
        raise UsageError(f"the functions of the module are {there}, and programs are given for {offered or 'none'}")
    return {name: program[name] for name in names}


def _program(program: Program, trust: bool) -> ExportedProgram:
    if isinstance(program, ExportedProgram):
        return program
    if isinstance(program, str | os.PathLike):
        from fx_importer.fx_graph.program_files import read_program  # imports SymPy

        return read_program(Path(program), trust=trust)
    raise UsageError(
        f"program= is an exported program or a .pt2 file, and not of type {type(program).__name__}: "
        "torch.export.export(model, args) makes one"
    )


def _check_programs(programs: Mapping[str, ExportedProgram], manifest: Manifest) -> None:
    """Raise `UsageError` listing the arguments of functions that the programs do not have in that form."""
    problems = [
        f"'{name}': {problem}"
        for name, program in programs.items()
        for problem in _differences(program, manifest.functions[name])
    ]
    if problems:
        raise UsageError("\n  ".join(["the module is of another program:", *problems]))


def _differences(program: ExportedProgram, function: Function) -> list[str]:
    inputs = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    tensors = {**program.constants, **program.state_dict}
    differences: list[str] = []
    for argument in function.arguments:
        there, name = inputs if argument.kind == "input" else tensors, argument.placeholder or argument.name
        if name not in there:
            differences.append(f"it has no {argument.kind} '{name}'")
        elif not _fits(there[name], argument):
            differences.append(f"the module has {argument.kind} '{argument.name}' as {spelled_type(argument.type)}")
    return differences


def _fits(value: Any, argument: Argument) -> bool:
    """Whether a tensor of the program is of the dtype, the rank and the static sizes of an argument."""
    wanted = argument.type.shape
    if wanted is None or not hasattr(value, "dtype"):
        return True
    sizes = [
        (size, actual) for size, actual in zip(wanted, value.shape, strict=False) if type(actual) is type(size) is int
    ]
    same = len(wanted) == value.ndim and all(size == actual for size, actual in sizes)
    return same and str(value.dtype) == f"torch.{argument.type.dtype}"


def _checked_options(options: Options, manifest: Manifest) -> Options:
    if options.output_type.value != manifest.output_type:
        raise UsageError(f"the module is {manifest.output_type}, and the options are for {options.output_type.value}")
    from fx_importer.compiler.compilation import Compilation  # only here: running needs no decompositions

    Compilation.of(options)  # raises for invalid ones
    return options


def _options_of(manifest: Manifest) -> Options:
    """Return the options of a lowering that are visible in its manifest."""
    kind = OutputType.get(manifest.output_type)
    arguments = [argument for function in manifest.functions.values() for argument in function.arguments]
    results = [result for function in manifest.functions.values() for result in function.results]
    weights = Weights.EXTERNAL if manifest.weights else Weights.INLINE
    if any(argument.kind == "weight" for argument in arguments):
        weights = Weights.ARGS
    mutation = Mutation.FUNCTIONAL if any(result.kind in ("state", "input") for result in results) else Mutation.ERROR
    if any(argument.overwritten for argument in arguments):
        mutation = Mutation.MUTABLE
    mesh = ",".join(f"{axis}={size}" for axis, size in manifest.mesh.items())
    narrows = target_for(kind).narrows
    passed = [(argument.type.dtype, argument.passed_as) for argument in (*arguments, *results)]
    plan = Plan.of(manifest.functions)
    name = next(iter(manifest.functions)) if len(manifest.functions) == 1 else "main"
    return Options(
        kind,
        importing=ImportOptions(
            func_name=name,
            mutation=mutation,
            weights=weights,
            mesh=mesh or None,
            plan=None if plan is None else str(plan),
        ),
        lowering=LoweringOptions(
            fallback=tuple(map(OutputType.get, manifest.fallback)),
            narrow_integers=narrows and any(NARROW.get(dtype, "") == as_ for dtype, as_ in passed),
            narrow_floats=narrows and any(NARROW_FLOATS.get(dtype, "") == as_ for dtype, as_ in passed),
        ),
    )

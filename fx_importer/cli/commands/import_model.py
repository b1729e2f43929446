"""``fx-importer import``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from fx_importer.cli.following import Following
from fx_importer.cli.json_output import STDOUT, document, json_output
from fx_importer.cli.model_loading import load_model, silence_torch
from fx_importer.cli.terminal import echo, print_module
from fx_importer.compiler.compilation import Call
from fx_importer.compiler.compile_programs import compile_programs
from fx_importer.diagnostics import progress
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.errors import UsageError
from fx_importer.frontend.example_inputs import check_inputs
from fx_importer.frontend.export import export_program
from fx_importer.importing import FxImporter
from fx_importer.mlir.module_io import ARTIFACT, SUFFIXES, holds_weights, manifest_path
from fx_importer.mlir.module_summary import summary_of
from fx_importer.mlir.output_files import check_writable, save_text
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.results.lowered import Lowered
from fx_importer.targets import target_for
from fx_importer.weights import check_place


def import_model(
    model: str,
    output: str,
    options: Options,
    manifest: Path | None = None,
    weights_file: Path | None = None,
    module_paths: bool = False,
    following: Following = Following(),  # noqa: B008 - it is frozen
    trust: bool = False,
    json: Path | None = None,
    by_default: bool = False,
    locations: bool = False,
) -> None:
    """Lower the model that ``model`` names, and write it to the file ``output``, or to standard output for ``-``.

    The manifest is written to ``manifest``, if given. Weights that are not in the module are read from
    ``weights_file``, or written to it. ``module_paths`` and ``locations`` are passed to `Lowered.save`, ``trust`` to
    `load_model`; ``following`` says what to print and record, and ``json`` gets a summary of the result.
    ``by_default`` says whether the output type is a default, which is printed.

    Raises:
        UsageError: if an output cannot be written (checked first), or ``model`` does not name a model.
        FxImporterError: if the model cannot be lowered; nothing is written in that case.
    """
    if output != STDOUT:
        check_writable(output, SUFFIXES)
        if Path(output).suffix == ARTIFACT and not target_for(options.output_type).portable_artifacts:
            raise UsageError(f"'{output}' is to be a portable artifact, which holds StableHLO: --output-type stablehlo")
    policy = options.importing.weights
    beside = None if output == STDOUT or holds_weights(output, policy) else manifest_path(output)
    if manifest is not None and beside is not None:
        raise UsageError(f"--manifest: with --weights {policy.value} it goes beside the module, to '{beside}'")
    if weights_file is not None and beside is None:
        raise UsageError(
            "--weights-file is for a module in a file, without its weights: pass --weights external or args, and for "
            "external ones a .mlir or .mlirbc file"
        )
    for path in (manifest, beside):
        if path is not None:
            check_writable(path)
    if weights_file is not None:
        check_place(weights_file)
    if output == str(json) == STDOUT:
        raise UsageError("--json - and -o - are both for standard output: name a file for one of them")
    options = following.prepared(options)
    with json_output(json) as write:
        with following.run(model, options.output_type.value) as followed, reporting_progress(True):
            lowered = followed.lowered = lower_model(model, options, trust)
            if output != STDOUT:
                lowered.save(output, weights_file, module_paths=module_paths, locations=locations)
        if output == STDOUT:
            print_module(lowered.module, enable_debug_info=locations)
        if manifest is not None:
            save_text(lowered.manifest.to_json(), manifest)
        for name, stub in lowered.operator_stubs.items():
            echo(f"{name}: PyTorch runs {stub.operator}", *stub.places, sep="\n    ", file=sys.stderr)
        if output != STDOUT:
            kind = options.output_type.value + (" (default)" if by_default else "")
            seconds = sum(stage.seconds for stage in lowered.trace.stages)
            cached = all(stage.name != "importing" for stage in lowered.trace.stages)
            source = ", from the cache" if cached else ""
            echo(f"{output}: {kind}, {Path(output).stat().st_size:,} bytes, {seconds:.2f} s{source}")
        write(document(_data(output, options.output_type, lowered)))


def _data(output: str, output_type: OutputType, lowered: Lowered) -> dict[str, Any]:
    """Return the summary of a lowering for ``--json``."""
    return {
        "output": output,
        "output_type": output_type,
        "bytes": None if output == STDOUT else Path(output).stat().st_size,
        "stages": {stage.name: stage.seconds for stage in lowered.trace.stages},
        "module": summary_of(lowered.module.operation, lowered.manifest),
    }


def lower_model(model: str, options: Options, trust: bool = False) -> Lowered:
    """Lower the model that ``model`` names. Raise `FxImporterError` if it cannot be lowered."""
    return compile_programs({options.importing.func_name: load_call(model, trust)}, FxImporter(), options)


def export_model(model: str, options: Options, trust: bool = False) -> ExportedProgram:
    """Export the model that ``model`` names. Raise `FxImporterError` if it cannot be exported."""
    return export_program(*load_call(model, trust), options.export)


def load_call(model: str, trust: bool) -> Call:
    """Return the model that ``model`` names, and its inputs. Raise `UsageError` if it names none."""
    progress.enter(f"load {model}")
    silence_torch()
    f, args, kwargs = load_model(model, trust=trust)
    check_inputs(f, args, kwargs, options=())
    return f, args, kwargs

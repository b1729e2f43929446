"""Reports for the explorer, of models that may fail to lower."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.compiler.compilation import Call, Compilation
from fx_importer.compiler.compile_programs import compile_programs
from fx_importer.compiler.diagnose import investigator
from fx_importer.compiler.driver import stages_of
from fx_importer.diagnostics.explorer import Contents, Recorder, contents_of
from fx_importer.diagnostics.observers import observing
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import FxImporterError, UsageError
from fx_importer.importing import FxImporter
from fx_importer.mlir.module_summary import summary_of
from fx_importer.options import Options


def contents_of_models(title: str, calls: Mapping[str, Call], options: Options) -> Contents:
    """Lower models, and return the report of it, which has the error if they cannot be lowered.

    Raises:
        UsageError: for invalid options or inputs.
    """
    recorder = Recorder()
    compilation = Compilation.of(options)
    trace = Trace(None, investigator(compilation), planned=tuple(stage.name for stage in stages_of(compilation)))
    kind = options.output_type.value
    try:
        with observing(recorder):
            compiled = compile_programs(calls, FxImporter(), options, trace=trace)
    except UsageError:
        raise
    except FxImporterError as error:
        return contents_of(title, kind, trace, recorder, error=error)
    return contents_of(title, kind, trace, recorder, summary_of(compiled.module.operation, compiled.manifest))

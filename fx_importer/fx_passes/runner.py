"""Runner of FX passes on the programs of a compilation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torch.export import ExportedProgram

from fx_importer.diagnostics.observers import pass_observers
from fx_importer.frontend.torch_patches import tracing
from fx_importer.fx_passes.fx_pass import FxContext, FxPass


@tracing()
def run_fx_passes(
    passes: Iterable[FxPass], programs: Mapping[str, ExportedProgram], context: FxContext
) -> Mapping[str, ExportedProgram]:
    """Run the ``passes`` that ``context`` selects on each of ``programs``, in order.

    Graphs are changed in place, except for the graphs of ``context.exported``.

    Raises:
        FxImporterError: as the passes do.
    """
    observers = pass_observers()
    for fx_pass in passes:
        if fx_pass.when(context):
            for observer in observers:
                observer.before_fx_pass(fx_pass.name, programs)
            within = replace(context, programs=programs)
            programs = {name: fx_pass.run(program, within) for name, program in programs.items()}
            for observer in observers:
                observer.after_fx_pass(fx_pass.name, programs)
    return programs

"""Check of programs that overwrite memory, for output types that have none."""

from __future__ import annotations

from torch.export import ExportedProgram

from fx_importer.errors import UsageError
from fx_importer.fx_graph.programs import mutated_state
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.options import Mutation


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Return ``program``. Raise `UsageError` if it mutates state or inputs."""
    mutated = [*mutated_state(program), *program.graph_signature.user_inputs_to_mutate.values()]
    if mutated:
        raise UsageError(
            f"{context.target.output_type.value} has values and no memory to overwrite, and the program mutates "
            f"{', '.join(map(repr, sorted(mutated)))}: pass mutation='functional'"
        )
    return program


REFUSE_MUTATION = FxPass(
    "refuse-mutation",
    _run,
    lambda context: context.options.importing.mutation is Mutation.MUTABLE and not context.target.memory,
)

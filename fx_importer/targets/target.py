"""Target: decompositions, data types and capabilities of an output type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch.export import ExportedProgram

from fx_importer.canonicalization import Dtypes
from fx_importer.decompositions import DecompositionTable, Overrides, expand_packets
from fx_importer.decompositions.engine.library_composites import library_composites
from fx_importer.decompositions.nn.quantization import quantization_rules
from fx_importer.lowerings import Lowerings, table_with
from fx_importer.options import LoweringOptions, Options
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, pipeline_for


@dataclass(frozen=True)
class Target:
    """An output type's decompositions, data types and capabilities. Its pipeline, which ends with its contract, is in
    `fx_importer.pipelines`, and the backends that run it in `fx_importer.execution.backend_table`."""

    output_type: OutputType
    decompositions: DecompositionTable
    dtypes: Dtypes
    library_operators: bool = True
    """Whether operators of libraries are decomposed too: composite and quantization ones."""
    memory: bool = True
    """Whether a module can overwrite memory, as ``mutation="mutable"`` asks for."""
    scalars: bool = True
    """Whether a module computes with scalars, such as results of ``item()``. Otherwise they become rank-0 tensors."""
    assertions: bool = True
    """Whether a module can hold assertions."""
    symbolic_shapes: bool = False
    """Whether a module can hold ``torch.symbolic_int`` and ``torch.bind_symbolic_shape``."""
    folds_constants: bool = False
    """Whether expressions without inputs are folded before the import."""
    tensors_only: bool = False
    """Whether functions take and return only non-empty tensors."""
    narrows_integers: bool = False
    """Whether the pipeline can narrow 64-bit integers to 32 bits."""
    dynamic_shapes: bool = True
    """Whether tensors can have dynamic dimensions."""
    portable_artifacts: bool = False
    """Whether a module can be serialized as a StableHLO portable artifact."""

    def table(
        self, options: Options, rules: Sequence[Lowerings], program: ExportedProgram | None = None
    ) -> DecompositionTable:
        """Return the decompositions before the import, with those of composite library operators in ``program``.

        Operators in ``backend_legal_ops`` and those with user ``rules`` are kept.

        Raises:
            UsageError: for a table, or changes to it, that are invalid.
        """
        given = options.decompositions
        changes = Overrides.of(given.keep, given.extra)
        if given.table is not None:
            table = expand_packets(given.table)
        else:
            table = self.decompositions
            if self.library_operators:
                quantized = {operator: each.rule for each in quantization_rules() for operator in each.operators}
                composites = {} if program is None else library_composites(program)
                known = DecompositionTable(composites | quantized, because="of another library: its definition")
                table = known.updated(table)
        if legal := {name.removeprefix("torch.") for name in options.lowering.backend_legal_ops}:
            whole = [each for each in table if legal & {str(each), str(getattr(each, "overloadpacket", each))}]
            table = table.keeping(*whole, because="named in backend_legal_ops")
        table = changes.applied_to(table)
        return table_with(rules, table, self.output_type)

    def pipeline(self, options: LoweringOptions) -> Pipeline:
        """Return the stages that follow the import."""
        return pipeline_for(self.output_type, options)

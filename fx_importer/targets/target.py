"""Target: decompositions, data types and capabilities of an output type.

Decompositions and dtypes load lazily: they import torch, which takes seconds, and pipelines need neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from fx_importer.options import LoweringOptions, Options
from fx_importer.output_types import OutputType
from fx_importer.pipelines import TORCH_BACKEND, ContractRules, Pipeline, changed

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.export import ExportedProgram

    from fx_importer.decompositions import DecompositionTable
    from fx_importer.decompositions.engine.table import DecompositionRule
    from fx_importer.fx_passes.legalization import Dtypes
    from fx_importer.lowerings import Lowerings


class Collectives(Enum):
    """How collective operators between devices are lowered."""

    KEPT = "kept"
    """They stay torch operators. With a mesh, attributes hold the device groups."""
    LOWERED = "lowered"
    """They are lowered to collectives over device groups of the mesh."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Target:
    """Everything that defines an output type."""

    output_type: OutputType
    load_decompositions: Callable[[], DecompositionTable]
    load_dtypes: Callable[[], Dtypes]
    pipelines: tuple[Callable[[LoweringOptions], Pipeline], ...] = ()
    """The pipelines that follow the import, in order. The last stage of the last one checks the contract."""
    contract: ContractRules | None = None
    """Which operations and types a lowered module may contain. None allows everything."""
    library_operators: bool = True
    """Whether library operators, composite and quantization ones, are decomposed too."""
    memory: bool = True
    """Whether a module can overwrite memory, as ``mutation="mutable"`` asks for."""
    scalars: bool = True
    """Whether a module computes with scalars, such as results of ``item()``. Otherwise they become rank-0 tensors."""
    assertions: bool = True
    """Whether a module can hold assertions."""
    symbolic_shapes: bool = False
    """Whether a module can hold ``torch.symbolic_int`` and ``torch.bind_symbolic_shape``."""
    random: bool = True
    """Whether a module samples random numbers at run time. Otherwise they are sampled during lowering."""
    folds_constants: bool = False
    """Whether expressions of weights and constants are folded before the import."""
    position_operators: int | None = None
    """Most operators of integers that stay computed though no weight decides them; None: any number of them. Loops of
    linalg compute short ones where they are read."""
    folds_casts: bool = False
    """Whether MLIR folds conversions of weights of one element, which has no end if the values are not there."""
    tensors_only: bool = False
    """Whether functions take and return only non-empty tensors."""
    narrows: bool = False
    """Whether the pipeline can narrow integers and floats of 64 bits to 32."""
    integer_quantized: bool = False
    """Whether quantized operators are integer operators, so that every quantized program is lowered in integers."""
    dynamic_shapes: bool = True
    """Whether tensors can have dynamic dimensions."""
    data_dependent_sizes: bool = True
    """Whether tensors can have sizes that depend on values, as the results of ``nonzero`` have."""
    specializes_sizes: bool = False
    """Whether engines recompile a module with dynamic sizes for each set of sizes."""
    collectives: Collectives = Collectives.REFUSED
    """How collective operators between devices are lowered."""
    portable_artifacts: bool = False
    """Whether a module can be serialized as a StableHLO portable artifact."""

    @cached_property
    def decompositions(self) -> DecompositionTable:
        """The decompositions before the import."""
        return self.load_decompositions()

    @cached_property
    def dtypes(self) -> Dtypes:
        """The dtypes of the output type."""
        return self.load_dtypes()

    def table(
        self, options: Options, rules: Sequence[Lowerings], program: ExportedProgram | None = None
    ) -> DecompositionTable:
        """Return the decompositions before the import, including composite library operators in ``program``.

        Operators in ``backend_legal_ops`` and operators with user ``rules`` are kept.

        Raises:
            UsageError: if the table, or a change to it, is invalid.
        """
        from fx_importer.decompositions import Overrides, expand_packets, leaving
        from fx_importer.decompositions.engine.library_composites import library_composites
        from fx_importer.lowerings import table_with

        decompositions, kind = options.decompositions, self.output_type
        changes = Overrides.of(decompositions.keep, decompositions.extra)
        if decompositions.table is not None:
            table = expand_packets(decompositions.table)
            left = [operator for operator in self.decompositions if operator not in table]
            table = leaving(table, left, kind, "decomposition_table=", because="not in decomposition_table")
        else:
            composites = library_composites(program) if self.library_operators and program is not None else {}
            table = self._with_library(composites) if composites else self._standard_table()
        if legal := {name.removeprefix("torch.") for name in options.lowering.backend_legal_ops}:
            whole = [
                operator
                for operator in table
                if legal & {str(operator), str(getattr(operator, "overloadpacket", operator))}
            ]
            table = leaving(table, whole, kind, "backend_legal_ops=", because="named in backend_legal_ops")
        lowering = options.lowering
        own_pipeline = kind.pipeline is not None or lowering.pipeline is not None
        kept = changes.keeping(table, kind, refuses=not own_pipeline, fallback=lowering.fallback)
        return changes.preferring(table_with(rules, kept, kind))

    @cached_property
    def _standard_tables(self) -> dict[bool, DecompositionTable]:
        return {}

    def _standard_table(self) -> DecompositionTable:
        """Return the table without changes. Its rules stay, and so do replacements that they recorded."""
        from fx_importer.decompositions.engine.local.recorded_replacements import RecordedReplacements
        from fx_importer.decompositions.nn.quantization import quantization_rules

        complete = not self.library_operators or bool(quantization_rules())
        if complete not in self._standard_tables:
            table = self._with_library({}) if self.library_operators else self.decompositions
            if self.output_type.base is None:  # rules of users may change
                table = table.recording(RecordedReplacements())
            self._standard_tables[complete] = table
        return self._standard_tables[complete]

    def _with_library(self, composites: Mapping[OpOverload, DecompositionRule]) -> DecompositionTable:
        """Return the decompositions with ``composites`` and the rules of quantization operators."""
        from fx_importer.decompositions import DecompositionTable
        from fx_importer.decompositions.nn.quantization import quantization_rules

        quantized = {operator: rule.rule for rule in quantization_rules() for operator in rule.operators}
        known = DecompositionTable({**composites, **quantized}, because="of another library: its definition")
        return known.updated(self.decompositions)

    def dtypes_for(self, options: LoweringOptions) -> Dtypes:
        """Return the dtypes of programs that are lowered with ``options``."""
        return replace(self.dtypes, inside_only=frozenset()) if options.narrow_floats else self.dtypes

    def pipeline(self, options: LoweringOptions) -> Pipeline:
        """Return the pipeline from the imported module to the output type, changed by ``options.pipeline``.

        Raises:
            UsageError: if a backend-legal op does not exist, or ``options.pipeline`` does not return a pipeline.
        """
        return changed(self.own_pipeline(options), options.pipeline)

    def own_pipeline(self, options: LoweringOptions) -> Pipeline:
        """Return the pipeline that the output type defines, without the change of ``options.pipeline``."""
        stages = [stage for pipeline in self.pipelines for stage in pipeline(options).stages]
        return Pipeline(self.output_type.value, tuple(stages))

    def pipeline_from_torch(self, options: LoweringOptions) -> Pipeline:
        """Return `pipeline` without the stage that produces the torch backend form, for input already in that form."""
        pipeline = self.pipeline(options)
        first = TORCH_BACKEND(options).stages[0].name
        return pipeline.without_stage(first) if pipeline.has(first) else pipeline

"""What each output type is made of. The one table of its kind."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram

from fx_importer import decompositions
from fx_importer.canonicalization import Dtypes
from fx_importer.decompositions import DecompositionTable, Overrides, expand_packets
from fx_importer.decompositions.engine.library_composites import library_composites
from fx_importer.decompositions.nn.quantization import quantization
from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import layers, table_with
from fx_importer.options import ImportOptions, LoweringOptions, Options
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, pipeline_for


@dataclass(frozen=True)
class Target:
    """An output type's decomposition table, the dtypes that it holds, and its pipeline."""

    output_type: OutputType
    decompositions: DecompositionTable
    dtypes: Dtypes

    @property
    def in_place(self) -> bool:
        """Whether a module of this type can overwrite memory."""
        return self.output_type.root in (OutputType.RAW, OutputType.TORCH, OutputType.LINALG_ON_TENSORS)

    @property
    def has_numbers(self) -> bool:
        """Whether a module of this type computes with numbers that are no tensors: with what was read from one."""
        return self.output_type.root not in (OutputType.TOSA, OutputType.STABLEHLO)

    @property
    def folds(self) -> bool:
        """Whether what depends on no input is computed before the import."""
        return self.output_type.root is OutputType.TOSA

    @property
    def tensors_only(self) -> bool:
        """Whether functions take and return nothing but tensors, and none without elements."""
        return self.output_type.root is OutputType.TOSA

    @property
    def narrows(self) -> bool:
        """Whether its pipeline has integers of 32 bits in the place of 64, where it is told to."""
        return self.output_type.root is OutputType.TOSA

    def table(self, options: Options, program: ExportedProgram | None) -> DecompositionTable:
        """Return the decompositions that come before the import, with those of what else ``program`` calls.

        What the backend takes whole is kept whole. RAW keeps what other libraries define.

        Raises:
            UsageError: for a table, or changes to it, that are none.
        """
        given = options.decompositions
        changes = Overrides.of(given.keep, given.extra)
        if given.table is not None:
            table = expand_packets(given.table)
        else:
            table = self.decompositions
            if self.output_type.root is not OutputType.RAW:
                rules = {operator: each.rule for each in quantization() for operator in each.operators}
                others = {} if program is None else library_composites(program)
                known = DecompositionTable(others | rules, because="of another library: its definition")
                table = known.updated(table)
        legal = {name.removeprefix("torch.") for name in options.lowering.backend_legal_ops}
        whole = [each for each in table if legal & {str(each), str(getattr(each, "overloadpacket", each))}]
        table = changes.applied_to(table.keeping(*whole, because="named in backend_legal_ops"))
        return table_with(layers(options.lowering.lowerings), table, self.output_type)

    def importing(self, options: ImportOptions) -> ImportOptions:
        """Return how a program is imported: no symbolic shapes where nothing can lower them.

        Raises:
            UsageError: for assertions that nothing can lower; to leave them out unsaid would not do.
        """
        if options.runtime_asserts and self.output_type.root in (OutputType.TOSA, OutputType.STABLEHLO):
            kind = self.output_type.value
            raise UsageError(f"runtime_asserts: {kind} has no assertions; raw, torch and linalg-on-tensors have them")
        keeps = self.output_type.root in (OutputType.RAW, OutputType.TORCH)
        return options if keeps else replace(options, symbolic_shapes=False)

    def pipeline(self, options: LoweringOptions) -> Pipeline:
        """Return the stages that follow the import."""
        return pipeline_for(self.output_type, options)


_TABLES = {
    OutputType.RAW: decompositions.BASE,
    OutputType.TORCH: decompositions.TORCH,
    OutputType.LINALG_ON_TENSORS: decompositions.LINALG,
    OutputType.TOSA: decompositions.TOSA,
    OutputType.STABLEHLO: decompositions.STABLEHLO,
}

_COMPLEX = frozenset((torch.complex32, torch.complex64, torch.complex128))
_SPECTRA = frozenset(
    getattr(packet, name)
    for packet in (aten.fft_fft, aten.fft_ifft, aten.fft_rfft, aten.fft_irfft, aten.stft, aten.istft)
    for name in packet.overloads()
)
_IN_STABLEHLO = frozenset(
    (aten.mm.default, aten.bmm.default, aten.neg.default, aten.complex.default, aten.view_as_real.default)
)
_DTYPES = {
    OutputType.RAW: Dtypes("the torch dialect"),
    OutputType.TORCH: Dtypes("the torch dialect"),
    OutputType.LINALG_ON_TENSORS: Dtypes(
        "linalg-on-tensors",
        moves=_COMPLEX,
        computes=_SPECTRA
        | {aten.mul.Tensor, aten.mm.default, aten.bmm.default, aten.complex.default}
        | {aten.view_as_real.default, aten.view_as_complex.default, aten.real.default, aten.imag.default},
        unsigned=False,
    ),
    OutputType.TOSA: Dtypes(
        "TOSA",
        lacks=frozenset((torch.complex128,)),
        pairs={torch.complex32: torch.float16, torch.complex64: torch.float32},
        sparse=False,
        unsigned=False,
    ),
    OutputType.STABLEHLO: Dtypes(
        "StableHLO", lacks=frozenset((torch.complex32,)), moves=_COMPLEX, computes=_IN_STABLEHLO
    ),
}

TARGETS = {output_type: Target(output_type, table, _DTYPES[output_type]) for output_type, table in _TABLES.items()}


@functools.cache
def target_for(output_type: OutputType) -> Target:
    """Return what ``output_type`` is made of: of the package's own, what the table says; of others, what they change.

    Raises:
        UsageError: if one of the user's own has decompositions that are none.
    """
    if output_type.base is None:
        return TARGETS[output_type]
    base, given = target_for(output_type.base), output_type.decompositions
    table = (
        base.decompositions if given is None else given if isinstance(given, Mapping) else given(base.decompositions)
    )
    if not isinstance(table, Mapping):
        raise UsageError(f"{output_type!r}: its decompositions are no table but {type(table).__name__}")
    return replace(base, output_type=output_type, decompositions=expand_packets(table))

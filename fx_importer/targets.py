"""What each output type is made of. The one table of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_importer import decompositions
from fx_importer.canonicalization import Dtypes
from fx_importer.decompositions.composite import compositions
from fx_importer.decompositions.quantization import quantization
from fx_importer.errors import UsageError
from fx_importer.options import ImportOptions, LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, pipeline_for


@dataclass(frozen=True)
class Target:
    """An output type's decomposition table, the dtypes that it holds, and its pipeline."""

    output_type: OutputType
    decompositions: Mapping[Any, Callable[..., Any]]
    dtypes: Dtypes

    @property
    def in_place(self) -> bool:
        """Whether a module of this type can overwrite memory."""
        return self.output_type in (OutputType.RAW, OutputType.TORCH, OutputType.LINALG_ON_TENSORS)

    @property
    def folds(self) -> bool:
        """Whether what depends on no input is computed before the import."""
        return self.output_type is OutputType.TOSA

    @property
    def narrows(self) -> bool:
        """Whether its pipeline has integers of 32 bits in the place of 64, where it is told to."""
        return self.output_type is OutputType.TOSA

    def table(self, options: LoweringOptions, program: ExportedProgram) -> Mapping[Any, Callable[..., Any]]:
        """Return the decompositions of ``program`` that come before the import.

        What the backend takes whole is kept whole. RAW keeps what other libraries define.
        """
        legal = {name.removeprefix("torch.") for name in options.backend_legal_ops}
        table = self.decompositions
        if self.output_type is not OutputType.RAW:
            rules = {operator: each.rule for each in quantization() for operator in each.operators}
            table = {**compositions(program), **rules, **table}
        if not legal:
            return table
        return {
            operator: rule
            for operator, rule in table.items()
            if str(operator) not in legal and str(operator.overloadpacket) not in legal
        }

    def importing(self, options: ImportOptions) -> ImportOptions:
        """Return how a program is imported: no symbolic shapes where nothing can lower them.

        Raises:
            UsageError: for assertions that nothing can lower; to leave them out unsaid would not do.
        """
        if options.runtime_asserts and self.output_type in (OutputType.TOSA, OutputType.STABLEHLO):
            kind = self.output_type.value
            raise UsageError(f"runtime_asserts: {kind} has no assertions; raw, torch and linalg-on-tensors have them")
        keeps = self.output_type in (OutputType.RAW, OutputType.TORCH)
        return options if keeps else replace(options, symbolic_shapes=False)

    def pipeline(self, options: LoweringOptions) -> Pipeline:
        """Return the stages that follow the import."""
        return pipeline_for(self.output_type, options)


aten = torch.ops.aten

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
    OutputType.TOSA: Dtypes("TOSA", lacks=_COMPLEX, sparse=False, unsigned=False),
    OutputType.STABLEHLO: Dtypes(
        "StableHLO", lacks=frozenset((torch.complex32,)), moves=_COMPLEX, computes=_IN_STABLEHLO
    ),
}

TARGETS = {output_type: Target(output_type, table, _DTYPES[output_type]) for output_type, table in _TABLES.items()}

"""LINALG_ON_TENSORS: linalg, tensor, arith, math and scf on builtin tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_importer import pipelines
from fx_importer.output_types import OutputType
from fx_importer.pipelines import contracts
from fx_importer.targets.target import Target

if TYPE_CHECKING:
    from fx_importer.decompositions import DecompositionTable
    from fx_importer.fx_passes.legalization import Dtypes


def _decompositions() -> DecompositionTable:
    from fx_importer.decompositions import LINALG

    return LINALG


def _dtypes() -> Dtypes:
    import torch

    from fx_importer.fx_graph.operators import aten
    from fx_importer.fx_passes.legalization import Dtypes

    fourier_transforms = frozenset(
        getattr(packet, name)
        for packet in (aten.fft_fft, aten.fft_ifft, aten.fft_rfft, aten.fft_irfft, aten.stft, aten.istft)
        for name in packet.overloads()
    )
    return Dtypes(
        "linalg-on-tensors",
        moves=frozenset((torch.complex32, torch.complex64, torch.complex128)),
        computes=fourier_transforms
        | {aten.mul.Tensor, aten.mm.default, aten.bmm.default, aten.complex.default}
        | {aten.view_as_real.default, aten.view_as_complex.default, aten.real.default, aten.imag.default},
        unsigned=False,
    )


LINALG_ON_TENSORS = Target(
    OutputType.LINALG_ON_TENSORS,
    _decompositions,
    _dtypes,
    pipelines=(pipelines.TORCH_BACKEND, pipelines.LINALG),
    contract=contracts.LINALG,
    folds_constants=True,
    position_operators=4,
)

"""The part that the tables of linalg, StableHLO and TOSA share: operators that none of them can lower."""

from __future__ import annotations

from fx_importer.decompositions.backward import BACKWARD, PROMOTED_BACKWARD
from fx_importer.decompositions.elementwise import activations, arithmetic, clamp
from fx_importer.decompositions.fft.fourier import FOURIER
from fx_importer.decompositions.indexing import index_put, indexing, nonzero, scatter_reduce
from fx_importer.decompositions.linalg_dense import LINALG_DENSE
from fx_importer.decompositions.reduction import cumulative, norms
from fx_importer.decompositions.resize import smooth
from fx_importer.decompositions.sort import median, searchsorted
from fx_importer.decompositions.special import SPECIAL
from fx_importer.decompositions.tables.base import BASE

LOWERED = (
    BASE.replacing(
        *cumulative.SCANS,
        *median.MEDIANS,
        *searchsorted.SEARCHES,
        because="the torch dialect or every backend lacks it",
    )
    .replacing(*scatter_reduce.SCATTER_VARIANTS, index_put.put, indexing.take, because="the torch dialect lacks it")
    .replacing(*smooth.ANTIALIASED_RESIZING, because="the torch dialect lacks it")
    .replacing(indexing.combinations, nonzero.nonzero_static, because="the torch dialect lacks it")
    .replacing(
        *SPECIAL,
        *clamp.FMAX_FMIN,
        arithmetic.rsub_tensor,
        norms.vector_norm,
        *norms.DISTANCES,
        because="no backend supports it",
    )
    .replacing(*LINALG_DENSE, norms.linalg_norm, because="the torch dialect lacks it")
    .replacing(*BACKWARD, because="it has no lowering, or one for two spatial axes only")
    .preferring(*PROMOTED_BACKWARD, because="torch's decompositions return another dtype than eager")
    .preferring(activations.threshold_of_integers, because="torch's decomposition does not truncate the threshold")
    .preferring(index_put.select_scatter_at_number, because="torch's decomposition asks whether the index is negative")
    .replacing(*FOURIER, because="the torch dialect lacks most FFT operators")
)

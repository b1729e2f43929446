"""The decompositions for linalg on tensors."""

from __future__ import annotations

from fx_importer.decompositions import (
    accumulating,
    complex_numbers,
    counting,
    division,
    edges,
    halves,
    indexing,
    ordering,
    pooling,
    powers,
    scalars,
    scans,
    selecting,
    smooth_resizing,
)
from fx_importer.decompositions.base import BASE
from fx_importer.decompositions.dense import DENSE
from fx_importer.decompositions.fourier import FOURIER
from fx_importer.decompositions.special import SIGNS, SPECIAL

LINALG = (
    BASE.replacing(
        *scans.SCANS,  # the C++ lowerings accumulate in half precision, and know one overload of sort
        *ordering.ORDERING,  # the dialect lacks them, or no backend takes them
        *accumulating.RENAMED,  # the dialect lacks them
        pooling.adaptive_max_pool,  # the C++ lowering takes a batch only, and windows of one size
        *smooth_resizing.SMOOTH_RESIZING,  # the dialect lacks them
        *selecting.OF_KNOWN_SIZE,  # the dialect lacks them
        *counting.COUNTING,  # the same; and embedding_bag's C++ lowering of sums ignores the weights of samples
        *complex_numbers.COMPLEX_NUMBERS,  # the C++ lowerings do not know that a number may be complex
        indexing.index_put,  # the C++ lowering takes negative indices as they are
        indexing.wide_index,  # the C++ lowering mixes the types of indices
        *SPECIAL,  # no backend takes them whole
        *SIGNS,  # there is no way to a float's bits
        *DENSE,  # the dialect lacks them
        *FOURIER,  # the same, of most
    )
    .preferring(
        *selecting.SELECTING,  # the C++ lowerings know nonzero of some rank, and end the process for the rest
        *(*edges.COMMON, edges.equal, edges.reciprocal, edges.negate, edges.elu, edges.gelu, edges.clamp),  # see there
        *division.divisions(division.by_remainder, remainders=False),  # through float64, and of one overload each
        powers.power_of_tensors,  # the C++ lowering does not convert a whole base
        *map(scalars.of_small_integers, (scalars.sub, scalars.rsub, scalars.multiply)),  # these end the process
    )
    .preferring(*halves.ACCUMULATING)  # the C++ lowerings accumulate in half precision
)

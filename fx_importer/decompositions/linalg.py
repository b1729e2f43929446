"""The decompositions for linalg on tensors."""

from __future__ import annotations

from fx_importer.decompositions import accumulating, complex_numbers, counting, indexing, ordering, scans
from fx_importer.decompositions.base import BASE
from fx_importer.decompositions.dense import DENSE
from fx_importer.decompositions.special import SPECIAL

LINALG = BASE.replacing(
    *scans.SCANS,  # the C++ lowerings accumulate in half precision, and know one overload of sort
    *ordering.ORDERING,  # the dialect lacks them, or no backend takes them
    *accumulating.RENAMED,  # the dialect lacks them
    *counting.COUNTING,  # the same; and embedding_bag's C++ lowering of sums ignores the weights of samples
    *complex_numbers.COMPLEX_NUMBERS,  # the C++ lowerings do not know that a number may be complex
    *DENSE,  # the dialect lacks them
    indexing.index_put,  # the C++ lowering takes negative indices as they are
    *SPECIAL,  # no backend takes them whole
)

"""The decompositions for linalg on tensors."""

from __future__ import annotations

from fx_importer.decompositions import complex_numbers
from fx_importer.decompositions.base import BASE

LINALG = BASE.replacing(
    *complex_numbers.COMPLEX_NUMBERS,  # the C++ lowerings do not know that a number may be complex
)

"""Special functions in terms of arithmetic, comparisons, roots, powers, logarithms, exponentials, sines and cosines."""

from __future__ import annotations

from fx_importer.decompositions.special.bessel import BESSEL
from fx_importer.decompositions.special.error_functions import ERROR_FUNCTIONS
from fx_importer.decompositions.special.gamma import GAMMA
from fx_importer.decompositions.special.modified_bessel import MODIFIED_BESSEL
from fx_importer.decompositions.special.polynomials import POLYNOMIALS

SPECIAL = (*GAMMA, *ERROR_FUNCTIONS, *BESSEL, *MODIFIED_BESSEL, *POLYNOMIALS)
"""What no backend takes whole."""

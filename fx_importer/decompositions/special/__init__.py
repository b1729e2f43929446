"""Decompositions of special functions.

Each uses arithmetic, comparisons, roots, powers, logarithms, exponentials, sines and cosines only.
"""

from __future__ import annotations

from fx_importer.decompositions.special.bessel import BESSEL
from fx_importer.decompositions.special.error_functions import ERROR_FUNCTIONS
from fx_importer.decompositions.special.float_parts import FLOAT_PARTS
from fx_importer.decompositions.special.gamma import GAMMA
from fx_importer.decompositions.special.gcd_lcm import GCD_LCM
from fx_importer.decompositions.special.incomplete_gamma import INCOMPLETE_GAMMA
from fx_importer.decompositions.special.logarithms import LOGARITHMS
from fx_importer.decompositions.special.modified_bessel import MODIFIED_BESSEL
from fx_importer.decompositions.special.polynomials import POLYNOMIALS
from fx_importer.decompositions.special.trigonometry import POLAR_COORDINATES, TRIGONOMETRY

SPECIAL = (
    *(*GAMMA, *INCOMPLETE_GAMMA, *ERROR_FUNCTIONS, *BESSEL, *MODIFIED_BESSEL, *POLYNOMIALS),
    *(*POLAR_COORDINATES, *FLOAT_PARTS, *GCD_LCM),
)
"""Rules of operators that no backend lowers, or not of every shape."""
TOSA_SPECIAL = (*TRIGONOMETRY, *LOGARITHMS)
"""Rules of operators that only TOSA does not lower."""

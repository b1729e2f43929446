"""Dense linear algebra, over the last two axes, in loops of masked operations that every target has."""

from __future__ import annotations

from fx_importer.decompositions.dense.functions import FUNCTIONS
from fx_importer.decompositions.dense.householder import HOUSEHOLDER
from fx_importer.decompositions.dense.jacobi import JACOBI
from fx_importer.decompositions.dense.ldl import LDL
from fx_importer.decompositions.dense.lu import LU
from fx_importer.decompositions.dense.schur import SCHUR
from fx_importer.decompositions.dense.triangular import TRIANGULAR

DENSE = (*TRIANGULAR, *LU, *LDL, *HOUSEHOLDER, *JACOBI, *SCHUR, *FUNCTIONS)

"""Dense linear algebra, over the last two axes, in loops of masked operations that every target has."""

from __future__ import annotations

from fx_importer.decompositions.linalg_dense.cholesky import TRIANGULAR
from fx_importer.decompositions.linalg_dense.eig import SCHUR
from fx_importer.decompositions.linalg_dense.eigh_svd import JACOBI
from fx_importer.decompositions.linalg_dense.ldl import LDL
from fx_importer.decompositions.linalg_dense.lu import LU
from fx_importer.decompositions.linalg_dense.matrix_functions import FUNCTIONS
from fx_importer.decompositions.linalg_dense.qr import HOUSEHOLDER

DENSE = (*TRIANGULAR, *LU, *LDL, *HOUSEHOLDER, *JACOBI, *SCHUR, *FUNCTIONS)

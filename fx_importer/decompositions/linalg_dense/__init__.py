"""Decompositions of dense linear algebra over the last two axes, in loops of masked operations."""

from __future__ import annotations

from fx_importer.decompositions.linalg_dense.cholesky import CHOLESKY
from fx_importer.decompositions.linalg_dense.eig import EIG
from fx_importer.decompositions.linalg_dense.eigh_svd import EIGH_SVD
from fx_importer.decompositions.linalg_dense.ldl import LDL
from fx_importer.decompositions.linalg_dense.lu import LU
from fx_importer.decompositions.linalg_dense.matrix_functions import MATRIX_FUNCTIONS
from fx_importer.decompositions.linalg_dense.qr import QR

LINALG_DENSE = (*CHOLESKY, *LU, *LDL, *QR, *EIGH_SVD, *EIG, *MATRIX_FUNCTIONS)

"""The names of ``torch_mlir.extras.fx_decomp_util``: torch-mlir's own decomposition table."""

from torch_mlir.extras.fx_decomp_util import (
    DEFAULT_DECOMPOSITIONS,
    get_decomposition_table,
    get_expanded_decomposition_table,
)

__all__ = ["DEFAULT_DECOMPOSITIONS", "get_decomposition_table", "get_expanded_decomposition_table"]

"""Quantized programs in integers.

A float program goes through ``normalization`` and ``post_training``, which insert quantize and dequantize operators
(`qdq`). ``folding`` replaces operators between these by integer operators, ``fx_importer_integer.*``. The rules, the
integer operators and their lowerings are in ``families``, one file for each operator family.
"""

from fx_importer.quantization.families import integer_lowerings
from fx_importer.quantization.families.resizes import WITHOUT_RESIZE
from fx_importer.quantization.folding import to_integers
from fx_importer.quantization.integer_operators import INTEGER_LIBRARY, integer
from fx_importer.quantization.post_training.integer_io import outer_scales
from fx_importer.quantization.qdq import check_dtypes, is_from_quantize, is_quantized
from fx_importer.quantization.rule import DYNAMIC_SIZES

__all__ = [
    "DYNAMIC_SIZES",
    "INTEGER_LIBRARY",
    "WITHOUT_RESIZE",
    "check_dtypes",
    "integer",
    "integer_lowerings",
    "is_from_quantize",
    "is_quantized",
    "outer_scales",
    "to_integers",
]

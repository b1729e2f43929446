"""Quantized programs in integers.

A float program goes through ``normalization`` and ``post_training``, which insert quantize and dequantize operators
(`qdq`). ``folding`` replaces operators between these by ``operators`` on int8 and int16, by the ``rules`` of each.
"""

from fx_importer.quantization.folding import to_integers
from fx_importer.quantization.operators.int8 import integer
from fx_importer.quantization.qdq import check_dtypes

__all__ = ["check_dtypes", "integer", "to_integers"]

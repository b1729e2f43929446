"""Quantized programs in integers: quantize and dequantize operators folded into operators on int8."""

from fx_importer.quantization.folding import to_integers
from fx_importer.quantization.operators import integer
from fx_importer.quantization.qdq import check_dtypes

__all__ = ["check_dtypes", "integer", "to_integers"]

"""Integer forms of float operators, one file for each family.

`RULES` has those of operators that compute; operators that move data are in `movement`, elementwise ones in
`elementwise`.
"""

from __future__ import annotations

from fx_importer.quantization.rules.arithmetic import ARITHMETIC
from fx_importer.quantization.rules.images import IMAGES
from fx_importer.quantization.rules.norms import NORMS
from fx_importer.quantization.rules.products import PRODUCTS
from fx_importer.quantization.rules.softmax import SOFTMAX

RULES = ARITHMETIC | PRODUCTS | SOFTMAX | NORMS | IMAGES
"""By operator."""

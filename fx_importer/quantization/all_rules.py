"""The rules of all operators."""

from __future__ import annotations

from fx_importer.quantization.rules import RULES as _PLAIN
from fx_importer.quantization.rules_of_images import IMAGES
from fx_importer.quantization.rules_of_layers import LAYERS
from fx_importer.quantization.rules_of_norms import NORMS

RULES = _PLAIN | LAYERS | NORMS | IMAGES
"""By operator."""

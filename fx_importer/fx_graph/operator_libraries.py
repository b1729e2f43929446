"""Libraries that register operators when they are imported, by the namespace of the operators."""

from __future__ import annotations

import importlib
import re
from importlib.util import find_spec

LIBRARIES = {
    "fx_importer_integer": "fx_importer.quantization.families",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao.quantization",
    "torchvision": "torchvision",
}
"""The module of a known library that registers a namespace. Nothing else is imported for the text of a file."""

_NAMESPACE = re.compile(rb"torch\.ops\.(\w{1,64})\.")


def import_libraries(text: bytes) -> None:
    """Import the known libraries, as far as they are installed, whose operators ``text`` names as ``torch.ops.*``."""
    for namespace in {match.decode() for match in _NAMESPACE.findall(text)} & set(LIBRARIES):
        module = LIBRARIES[namespace]
        if find_spec(module.partition(".")[0]) is not None:
            importlib.import_module(module)

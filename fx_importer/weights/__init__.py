"""Weights outside of modules: reading, validating, linking into a module, and writing."""

from fx_importer.weights.gguf_files import GgufHeader, GgufTensor
from fx_importer.weights.gguf_files import read_header as read_gguf_header
from fx_importer.weights.linking import as_passed, link, linked
from fx_importer.weights.matching import Source, read_weights
from fx_importer.weights.weight_files import Stored, stored_in
from fx_importer.weights.writing import check_place, save_weights, write_weights

__all__ = [
    "GgufHeader",
    "GgufTensor",
    "Source",
    "Stored",
    "as_passed",
    "check_place",
    "link",
    "linked",
    "read_gguf_header",
    "read_weights",
    "save_weights",
    "stored_in",
    "write_weights",
]

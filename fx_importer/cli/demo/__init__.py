"""``fx-importer demo``: a sentence encoder with real weights, lowered to every output type and run with MLIR's JIT."""

from fx_importer.cli.demo.demo import run_demo
from fx_importer.cli.demo.sentence_encoder import load_encoder

__all__ = ["load_encoder", "run_demo"]

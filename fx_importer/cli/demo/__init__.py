"""``fx-importer demo``: a sentence encoder with its real weights, to every output type, and run through MLIR's JIT."""

from fx_importer.cli.demo.demo import run_demo

__all__ = ["run_demo"]

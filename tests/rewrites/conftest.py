"""Programs as MLIR text, ready to run."""

from tests.engines.conftest import jit, parse

__all__ = ["jit", "parse"]

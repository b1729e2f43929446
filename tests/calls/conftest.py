"""Programs as MLIR text, as in the tests of engines."""

from tests.engines.conftest import parse

__all__ = ["parse"]

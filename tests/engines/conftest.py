"""Programs as MLIR text, ready to run."""

from collections.abc import Callable

import pytest

from fx_importer.calls.backend import Loaded
from fx_importer.engines import JitBackend
from fx_importer.mlir.bindings import ir, load_dialects, new_context


@pytest.fixture
def parse() -> Callable[[str], ir.Module]:
    """Return what parses a module, each in a context of its own."""

    def parse(text: str) -> ir.Module:
        load_dialects(context := new_context())
        return ir.Module.parse(text, context)

    return parse


@pytest.fixture
def jit(parse: Callable[[str], ir.Module]) -> Callable[[str], Loaded]:
    """Return what compiles the function ``main`` of a text."""
    return lambda text: JitBackend().load(parse(text))

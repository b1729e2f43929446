"""Runs what was lowered on the backend of its output type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fx_importer import Caller, NotInstalledError
from fx_importer.lowered import Lowered


@pytest.fixture
def caller() -> Callable[..., Caller]:
    """Return `Lowered.caller`, which skips the test where the backend is not installed."""

    def caller(lowered: Lowered, **options: Any) -> Caller:
        try:
            return lowered.caller(**options)
        except NotInstalledError as error:
            pytest.skip(f"the extra '{error.extra}' is not installed")

    return caller

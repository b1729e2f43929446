"""Fixtures of end-to-end tests: the backend of an output type, and expected failures without the search for causes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fx_importer import Caller, NotInstalledError
from fx_importer.api.lowered import Lowered
from fx_importer.compiler import driver


@pytest.fixture
def caller() -> Callable[..., Caller]:
    """Return `Lowered.caller`, which skips the test where the backend is not installed."""

    def caller(lowered: Lowered, **options: Any) -> Caller:
        try:
            return lowered.caller(**options)
        except NotInstalledError as error:
            pytest.skip(f"the extra '{error.extra}' is not installed")

    return caller


@pytest.fixture(autouse=True)
def no_search_for_causes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the search for unsupported operators in expected failures: it lowers each operator on its own, which
    takes seconds.
    """
    if request.node.get_closest_marker("xfail"):
        monkeypatch.setattr(driver, "investigator", lambda options: None)

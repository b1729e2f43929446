"""Turns of engines."""

import sys
from dataclasses import replace

import pytest

from fx_importer.benchmarking import chosen_engines, measure
from fx_importer.benchmarking.engine_process import Loaded, Loading, Turn
from fx_importer.options import Limits


@pytest.mark.parametrize(("seconds", "last"), [(0.02, Turn(3, True)), (0.06, Turn(1, True)), (2.0, Turn(1, False))])
def test_calls_of_turns_are_chosen_when_no_engine_loads(monkeypatch, seconds, last):
    asked = []

    class Answers:
        def __init__(self, _: str):
            pass

        def ask(self, what: str, request: Loading | Turn, _: Limits):
            asked.append((what, request))
            return Loaded(0.0, 0.0, 0, 0.0, True) if isinstance(request, Loading) else (seconds, 0)

    monkeypatch.setattr(sys.modules[measure.__module__], "Child", Answers)
    eager = chosen_engines()[0]
    engines = [replace(eager, name=each) for each in ("eager", "second", "third")]
    found = measure(lambda: (None, (), {}), engines, 1, 5, Limits(), loading_at_once=2)
    assert [each.calls for each in found] == [(seconds,) * 5] * 3
    loaded = [isinstance(request, Loading) for _, request in asked]
    assert loaded == [True] * 3 + [False] * (len(asked) - 3)
    assert asked[-3:] == [(each.name, last) for each in engines]

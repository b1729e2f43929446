"""JSON that someone else may have written."""

from __future__ import annotations

import pytest

from fx_importer.json_text import parse_json


def test_values_are_read():
    assert parse_json(b'{"a": [1, 2.5, null, {"b": "\\u00fc"}]}') == {"a": [1, 2.5, None, {"b": "ü"}]}
    assert parse_json("[Infinity]", finite=False) == [float("inf")]
    assert parse_json("[" * 150 + "]" * 150)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting"),
        (b"\x80", "decode"),
        ('{"a": 1, "\\u0061": 2}', "the key 'a' is there twice"),
        ("[NaN]", "NaN is not a JSON number"),
        ("[" * 300 + "]" * 300, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 300 + "1" + "}" * 300, "nested too deeply"),
        ("1" * 5000, "digits"),
    ],
)
def test_other_text_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_json(text)

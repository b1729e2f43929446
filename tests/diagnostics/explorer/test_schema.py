"""The JSON of reports has the schema in docs/explorer.schema.json, and its indices exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fx_importer.diagnostics.explorer.contents import long_statements
from tests.diagnostics.explorer import pages

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "explorer.schema.json").read_text())


def checked(contents: dict[str, Any]) -> dict[str, Any]:
    contents = json.loads(json.dumps(contents, allow_nan=False))
    jsonschema.Draft202012Validator(SCHEMA).validate(contents)
    assert set(contents) == set(SCHEMA["properties"])
    for view in contents["views"]:
        assert len(view["lines"]) == len(view["site_sets"])
        assert max(view["site_sets"]) < len(contents["site_sets"])
        for number, (line, name, inputs) in enumerate(view["nodes"]):
            written = contents["node_names"][name].removeprefix("func.")
            assert written.startswith(("input ", "output")) or written in view["lines"][line]
            assert all(each < number for each in inputs)
    return contents


def test_lowered_and_verified():
    contents = checked(pages.verified())
    check = contents["checks"][0]
    assert (check["backend"], check["output"], check["dtype"], check["shape"]) == ("jit", "output", "float32", [2, 3])
    nodes = contents["views"][0]["nodes"]
    names = [contents["node_names"][name] for _, name, _ in nodes]
    assert names == ["input x", "aten.mul.Tensor", "aten.softmax.int", "output"]
    assert [inputs for _, _, inputs in nodes] == [[], [0], [1], [2]]
    assert contents["modules"][""] == contents["title"] == "Small"
    assert contents["node_names"][contents["views"][-1]["nodes"][-1][1]].startswith("output")


def test_passes_with_and_without_effect():
    contents = checked(pages.verified())
    changes = {each["name"]: each["hunks"] for each in contents["passes"]}
    assert any("-" in row[0] and "aten.softmax.int" in row for _, _, rows in changes["decompose"] for row in rows)
    assert changes["fold-constants"] == []
    assert contents["stages"][contents["passes"][-1]["stage"]]["name"] == "contract"


def test_gradients_are_linked_by_lines_of_the_program():
    contents = checked(pages.gradients())
    assert contents["files"][0]["path"] == "exported program"
    for view in contents["views"]:
        operations = [line for line, name, _ in view["nodes"] if "." in contents["node_names"][name]]
        assert all(contents["site_sets"][view["site_sets"][line]] for line in operations)


def test_failing():
    contents = checked(pages.failing())
    assert contents["outcome"] == "failed"
    assert contents["modules"]["mix"] == "Linear"


def test_constants_belong_to_their_users():
    contents = checked(pages.failing())
    first = contents["views"][0]
    row = next(n for n, line in enumerate(first["lines"]) if "%p_mix_weight" in line)
    sites = contents["site_sets"][first["site_sets"][row]]
    assert [contents["sites"][each]["module"] for each in sites] == ["mix"]


def test_statements():
    source = 'x = f(\n    1,\n)\n"""A\ntext"""\nif (\n    x\n):\n    return_ = [\n    ]\ny = 1\n'
    assert list(long_statements(source)) == [(1, 3), (9, 10)]
    assert list(long_statements("x = (")) == []


@pytest.mark.parametrize("key", ["views", "outcome"])
def test_schema_is_strict(key: str):
    contents = pages.large(2)
    del contents[key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(contents)

"""Names of inputs, outputs and dynamic dimensions, as `torch.onnx.export` takes them."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.export import Dim

from fx_importer import ExportError, UsageError, load, lower
from fx_importer.cli import main
from fx_importer.manifest import Manifest


class Masked(torch.nn.Module):
    """Writes to an input, and has a buffer of the name of another."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(3))

    def forward(self, image, mask):
        image.add_(1)
        return {"logits": image * mask + self.mask, "first": image[0]}


INPUTS = torch.rand(4, 3), torch.rand(4, 3)


def test_names_in_manifest_and_ir(tmp_path):
    lowered = lower(
        Masked(),
        *INPUTS,
        output_type="linalg",
        mutation="functional",
        input_names=["pixel.values", "attention mask"],
        output_names=("logits", "row"),
    )
    function = lowered.manifest.functions["main"]
    assert [each.name for each in function.arguments] == ["pixel.values", "attention mask"]
    assert [each.name for each in function.results] == ["pixel.values", "logits", "row"]
    assert function.results[2].alias_of == "pixel.values"
    for name in ("pixel.values", "attention mask", "logits", "row"):
        assert f'fx_importer.name = "{name}"' in str(lowered.module)
    lowered.verify(backends=["jit", "eager"]).raise_if_failed()
    assert lowered.bisect(backend="eager") is None  # which lowers programs with other results

    lowered.save(tmp_path / "model.mlirbc")
    program = torch.export.export(Masked(), INPUTS)
    assert Manifest.from_json(lowered.manifest.to_json()) == lowered.manifest
    load(tmp_path / "model.mlirbc", program=program).verify(backends=["jit"]).raise_if_failed()


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"input_names": ["x"]}, "input_names names 1 inputs, but the function has 2: image, mask"),
        ({"output_names": list("abc")}, "output_names names 3 outputs, but the function has 2"),
        ({"input_names": ["x", "x"]}, "input_names has names that are empty or occur twice: 'x'"),
        ({"output_names": ["x", ""]}, "output_names has names that are empty or occur twice: ''"),
        ({"input_names": "xy"}, "input_names is a list of names"),
        ({"input_names": [1, 2]}, "input_names is a list of names"),
        ({"input_names": 5}, "input_names is a list of names"),
    ],
)
def test_names_that_do_not_fit(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        lower(Masked(), *INPUTS, mutation="functional", **options)


def test_names_of_several_functions():
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(UsageError, match="of one function: the module has several"):
        lower({"one": program, "other": program}, input_names=["x"])


def test_names_on_the_command_line(tmp_path, monkeypatch):
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), tmp_path / "relu.pt2")
    files = ["-o", str(tmp_path / "relu.mlir"), "--manifest", str(tmp_path / "relu.json")]
    names = ["--input-names", "x", "--output-names", "y"]
    monkeypatch.setattr(sys, "argv", ["fx-importer", "import", str(tmp_path / "relu.pt2"), *files, *names])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    function = Manifest.from_json((tmp_path / "relu.json").read_text()).functions["main"]
    assert (function.arguments[0].name, function.results[0].name) == ("x", "y")


def added(x, y):
    return x + y.sum(), y * 2


@pytest.mark.parametrize(
    "shapes, equal",
    [
        ({"x": {0: "batch"}, "y": {0: "batch"}}, True),
        ({"x": {0: "batch"}, "y": {0: Dim("batch", min=2)}}, True),
        ([{0: "batch"}, {0: "batch"}], True),
        ({"x": {0: "rows"}, "y": {0: "columns"}}, False),
    ],
)
def test_dimensions_by_name(shapes, equal):
    lowered = lower(added, *INPUTS, output_type="linalg", dynamic_shapes=shapes)
    rows, columns = ((each.type.shape or (0,))[0] for each in lowered.manifest.functions["main"].arguments)
    assert (rows, columns) == (("batch", "batch") if equal else ("rows", "columns"))
    assert set(lowered.manifest.functions["main"].symbols) == {rows, columns}
    given = torch.rand(6, 3), torch.rand(6 if equal else 5, 3)
    lowered.verify(*given, backends=["jit"]).raise_if_failed()


def test_a_name_that_occurs_once_takes_its_range_from_the_model():
    lowered = lower(lambda x: x.reshape(-1, 2, 3), torch.ones(4, 3), dynamic_shapes=[{0: "batch"}])
    assert len(lowered.manifest.functions["main"].symbols) == 1


def test_names_of_dimensions_of_a_builtin():
    lowered = lower(torch.relu, torch.ones(4, 3), output_type="linalg", dynamic_shapes={"args": ({0: "n"},)})
    assert [each.type.shape for each in lowered.manifest.functions["main"].arguments] == [("n", 3)]


class Nested(torch.nn.Module):
    def forward(self, pair, *rest, scale):
        return torch.cat([pair["x"], rest[0]]) * scale, rest[1]


def test_names_of_dimensions_in_nested_inputs(tmp_path):
    shapes = {"pair": {"x": {0: "n"}}, "rest": ((Dim("m"), None), {0: 2 * Dim("n")}), "scale": None}
    inputs = {"x": torch.rand(4, 3)}, torch.rand(5, 3), torch.rand(8, 3)
    lowered = lower(Nested(), *inputs, scale=torch.ones(3), output_type="linalg", dynamic_shapes=shapes)
    lowered.save(tmp_path / "nested.mlirbc")
    for manifest in (lowered.manifest, load(tmp_path / "nested.mlirbc").manifest):
        function = manifest.functions["main"]
        assert [each.type.shape for each in function.arguments] == [("n", 3), ("m", 3), ("2*n", 3), (3,)]
        first, second = (each.type.shape for each in function.results)
        assert first in (("n + m", 3), ("m + n", 3))
        assert second == ("2*n", 3)
        assert {"n", "m"} <= set(function.symbols)
    lowered(*inputs, scale=torch.ones(3))
    with pytest.raises(UsageError, match="a multiple of 2"):
        lowered(inputs[0], inputs[1], torch.rand(7, 3), scale=torch.ones(3))


@pytest.mark.parametrize("names", [("rows", "parts"), ("max", "class")], ids=["named", "taken"])
def test_guards_have_the_names_of_dimensions(names):
    def parts(x, y):
        return x.reshape(y.shape[0], -1)

    shapes = [{0: names[0]}, {0: names[1]}]
    lowered = lower(parts, torch.rand(6, 3), torch.rand(2), output_type="linalg", dynamic_shapes=shapes)
    assert set(lowered.manifest.functions["main"].symbols).isdisjoint(names) is (names[0] == "max")
    assert lowered(torch.rand(12, 3), torch.rand(4)).shape == (4, 9)
    with pytest.raises(UsageError, match="was exported for sizes with"):
        lowered(torch.rand(7, 3), torch.rand(4))


@pytest.mark.parametrize(
    "shapes, error, sentence",
    [
        ({"x": {0: "a b"}, "y": None}, UsageError, "names dimensions by 'a b': a name is a Python identifier"),
        ({"x": {0: "n"}, "y": {1: "n"}}, ExportError, "n"),
    ],
    ids=["no identifier", "different sizes"],
)
def test_dimensions_that_do_not_fit(shapes, error, sentence):
    with pytest.raises(error, match=sentence):
        lower(added, *INPUTS, dynamic_shapes=shapes)

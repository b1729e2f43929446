"""The manifest: arguments and results of a module's functions, as data and as JSON."""

import json

import pytest
import torch

from fx_importer import Caller, Manifest, UsageError, lower


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, inputs, *rest, scale=2.0, mode="fast", nothing=None):
        self.seen.add_(1)
        out = inputs["x"] * self.weight * scale
        return {"out": out, "bytes": out.to(torch.uint8)}, (rest[0].shape[0], None, 3)


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    rows = torch.export.Dim("rows", min=2, max=16)
    shapes = {"inputs": {"x": {0: rows}}, "rest": ({0: rows},), "scale": None, "mode": None}
    inputs = ({"x": torch.ones(4, 3)}, torch.ones(4))
    return lower(
        Model(), *inputs, scale=2.0, mode="fast", output_type="torch", mutation="functional", dynamic_shapes=shapes
    ).manifest


def test_arguments_and_results(manifest):
    function = manifest.functions["main"]
    ((symbol, limits),) = function.symbols.items()
    assert limits == (2, 16)
    assert [(a.kind, a.name, a.type.dtype, a.type.shape, a.leaf) for a in function.arguments] == [
        ("state", "seen", "float32", (1,), None),
        ("input", "inputs_x", "float32", (symbol, 3), 0),
        ("input", "rest_0", "float32", (symbol,), 1),
        ("input", "scale", "float", None, 2),
    ]
    assert [(r.kind, r.name, r.type.dtype, r.type.shape, r.leaf) for r in function.results] == [
        ("state", "seen", "float32", (1,), None),
        ("output", "output[0]['out']", "float32", (symbol, 3), 0),
        ("output", "output[0]['bytes']", "uint8", (symbol, 3), 1),
        ("output", "output[1][0]", "int", None, 2),
        ("output", "output[1][2]", "int", None, 4),
    ]


def test_leaves(manifest):
    function = manifest.functions["main"]
    assert [(leaf.path, leaf.fixed, leaf.value) for leaf in function.inputs.leaves] == [
        ("args[0]['x']", False, None),
        ("args[1]", False, None),
        ("kwargs['scale']", True, 2.0),
        ("kwargs['mode']", True, "fast"),
    ]
    assert [(leaf.path, leaf.fixed, leaf.value) for leaf in function.outputs.leaves][2:] == [
        ("output[1][0]", False, None),
        ("output[1][1]", True, None),
        ("output[1][2]", True, 3),
    ]


def test_constants_and_state(manifest):
    assert {name: (held.kind, held.persistent) for name, held in manifest.state.items()} == {"seen": ("buffer", False)}
    assert {name: held.kind for name, held in manifest.constants.items()} == {"weight": "parameter"}


def test_json_round_trips(manifest):
    text = manifest.to_json()
    assert json.loads(text)["format"] == 1
    assert Manifest.from_json(text) == manifest


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1, "functions": 3}'])
def test_text_that_is_not_a_manifest(text):
    with pytest.raises(UsageError, match="not a manifest of format 1"):
        Manifest.from_json(text)


@pytest.mark.parametrize("scale", [5, [0.5], [1, 0], [0.0, 0], [0.5, 1.5], [10**400, 0], "ab"], ids=range(7))
def test_scales_are_a_float_and_an_integer(manifest, scale):
    document = json.loads(manifest.to_json())
    document["functions"]["main"]["arguments"][0]["scale"] = scale
    with pytest.raises(UsageError, match="not a manifest of format 1: .*(scale|unpack)"):
        Manifest.from_json(json.dumps(document))


def test_unregistered_type_is_named(manifest):
    with pytest.raises(UsageError, match="a type that is not registered here: .*elsewhere.Type"):
        Manifest.from_json(manifest.to_json().replace("builtins.dict", "elsewhere.Type"))


def test_caller_with_a_device_function(manifest):
    """A manifest from JSON, and a runtime of the user."""

    def device(seen, x, rest, scale):
        return seen + 1, x * scale, (x * scale).to(torch.uint8).view(torch.int8), rest.shape[0], 3

    state = {"seen": torch.zeros(1), "more": torch.ones(2)}
    caller = Caller(Manifest.from_json(manifest.to_json()), {"main": device}, state)
    x = torch.full((2, 3), 100.0)
    (first, second), _ = caller({"x": x}, torch.ones(2), mode="fast", scale=2.0), None
    assert torch.equal(first["out"], x * 2)
    assert torch.equal(first["bytes"], torch.full((2, 3), 200, dtype=torch.uint8))
    assert second == (2, None, 3)
    assert caller.state["seen"].item() == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "sentence"),
    [
        (({"x": torch.ones(2, 3)},), {}, r"the inputs are args\[0\]\['x'\], but .* args\[1\], kwargs\['scale'\]"),
        (
            ([torch.ones(2, 3)], torch.ones(2)),
            {"scale": 2.0, "mode": "fast"},
            r"the inputs are args\[0\]\[0\], args\[1\], .* exported for args\[0\]\['x'\]",
        ),
        (
            ({"x": torch.ones(2, 3)}, torch.ones(2)),
            {"scale": 2.0, "mode": "slow"},
            r"'kwargs\['mode'\]' is 'slow', but was fixed to 'fast'",
        ),
        (
            ({"x": torch.ones(2, 3).int()}, torch.ones(2)),
            {"scale": 2.0, "mode": "fast"},
            "the input 'inputs_x' is int32, but the program was exported for float32",
        ),
    ],
)
def test_wrong_inputs(manifest, args, kwargs, sentence):
    caller = Caller(manifest, {"main": lambda *_: pytest.fail("called")}, {"seen": torch.zeros(1)})
    with pytest.raises(UsageError, match=sentence):
        caller(*args, **kwargs)


def test_missing_state_or_function_is_named(manifest):
    with pytest.raises(UsageError, match="no state was given for 'seen'"):
        Caller(manifest, {"main": lambda *_: ()})
    with pytest.raises(UsageError, match="no function was given for 'main'"):
        Caller(manifest, {}, {"seen": torch.zeros(1)})
    with pytest.raises(UsageError, match="the state 'seen' is of type int, and not a tensor"):
        Caller(manifest, {"main": lambda *_: ()}, {"seen": 0})  # pyright: ignore[reportArgumentType]

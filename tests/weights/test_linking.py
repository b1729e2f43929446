"""Linking of weights into modules: by name, without copies, and with all errors at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fx_importer import Caller, Lowered, Manifest, UsageError, link, lower, read_weights
from fx_importer.engines import JitBackend
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.mlir.resources import elided_resource, key_of, resources_in
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.weights.weight_files import stored_in


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.again = torch.nn.Linear(16, 16)
        self.again.weight = self.first.weight

    def forward(self, x):
        return self.again(self.first(x))


X = torch.ones(2, 16)


@pytest.fixture(scope="module")
def model() -> Tied:
    return Tied().eval()


@pytest.fixture(scope="module")
def lowered(model: Tied) -> Lowered:
    return lower(model, X, output_type="linalg-on-tensors", weights="external")


@pytest.fixture
def saved(lowered: Lowered, tmp_path: Path) -> Path:
    lowered.save(tmp_path / "m.mlirbc", weights=tmp_path / "w.safetensors")
    return tmp_path / "m.mlirbc"


def test_memory_is_shared(model, lowered):
    """Later in-place changes are visible in the printed module."""
    tensors = {name: each.detach().clone() for name, each in model.state_dict().items()}
    tensors["again.weight"] = tensors["first.weight"]
    linked = link(lowered.module, tensors, lowered.manifest)
    before = str(linked)
    tensors["first.bias"].fill_(1.5)
    assert str(linked) != before
    assert 'first.bias: "0x' in str(linked)
    assert "0000C03F" * 16 in str(linked)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_weights_of_one_element(dtype):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(3, dtype=dtype))
            self.register_buffer("shift", torch.tensor([[2]], dtype=dtype))

        def forward(self, x):
            return x * self.get_buffer("scale") + self.get_buffer("shift")

    lowered = lower(Scaled(), X[0], output_type="linalg-on-tensors", weights="external")
    torch.testing.assert_close(lowered.run(X[0]), Scaled()(X[0]))


def test_tied_weight(model, lowered):
    (tied,) = [each for each in lowered.manifest.weights.values() if each.also]
    assert {tied.name, *tied.also} == {"first.weight", "again.weight"}
    state = dict(model.state_dict())
    for name in ("first.weight", "again.weight"):
        assert str(link(lowered.module, {k: v for k, v in state.items() if k != name}, lowered.manifest)) == str(
            lowered.linked
        )
    equal = state | {"again.weight": state["again.weight"].clone()}
    assert str(link(lowered.module, equal, lowered.manifest)) == str(lowered.linked)
    other = state | {"again.weight": state["again.weight"] + 1}
    with pytest.raises(UsageError, match="is not '.*', and they are one tensor in the module"):
        link(lowered.module, other, lowered.manifest)


def test_all_mismatches_are_listed(lowered):
    given = {"first.weight": torch.rand(16, 16).double(), "first.bias": torch.rand(3), "again.bias": 3}
    with pytest.raises(UsageError) as error:
        link(lowered.module, given, lowered.manifest)
    assert sorted(str(error.value).splitlines()[1:]) == [
        "  'again.bias' is of type int, and no tensor, but the module was made for float32[16]",
        "  'first.bias' is float32[3], but the module was made for float32[16]",
        "  'first.weight' is float64[16, 16], but the module was made for float32[16, 16]",
    ]


@pytest.mark.parametrize(
    "tensor, message",
    [
        (torch.rand(16, 16, device="meta"), "is on the meta device, and has no values"),
        (torch.rand(16, 16).to_sparse(), "is not a dense tensor"),
    ],
    ids=["meta", "sparse"],
)
def test_tensors_of_other_kinds(model, lowered, tensor, message):
    state = {name: tensor if "weight" in name else each for name, each in model.state_dict().items()}
    with pytest.raises(UsageError, match=message):
        link(lowered.module, state, lowered.manifest)


def test_changed_files_are_errors(saved, model):
    linked = link(saved)
    torch.testing.assert_close(JitBackend().load(linked)(X)[0], model(X).detach())
    file = saved.with_name("w.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(UsageError, match="in one place; to take other weights, pass them:\n.*its hash differs"):
        link(saved)
    link(saved, file)  # explicit weights are accepted
    file.write_bytes(data[:-1])
    with pytest.raises(UsageError, match="is too short"):
        link(saved)
    file.unlink()
    with pytest.raises(UsageError, match="in 3 places.*(\n.*there is no file '.*w.safetensors'){3}"):
        link(saved)


def test_manifest_of_another_module(model, lowered):
    """The names are equal; without the check of sizes, MLIR would read beyond the tensors."""
    wide = lower(Tied().double(), X.double(), output_type="linalg-on-tensors", weights="external")
    with pytest.raises(UsageError, match="of another module:(\n.* is float32.* there, and tensor<16.*xf64> here){3}"):
        link(wide.module, model, lowered.manifest)


def test_unknown_names_are_listed(model, lowered):
    with pytest.raises(
        UsageError, match="there is 'model.first.weight', .* and 1 more, which the module does not name"
    ):
        lowered.with_weights({f"model.{name}": each for name, each in model.state_dict().items()})


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda each: each["type"].update(dtype="float33"), "'float33' is not a dtype"),
        (lambda each: each["type"].update(shape="ab"), "'ab' is not a shape"),
        (lambda each: each["type"].update(shape=[-1]), r"\[-1\] is not a shape"),
        (lambda each: each["type"].update(shape=["n"]), "the shape of 'first.bias' is not known"),
        (lambda each: each.update(passed_as="float33"), "'float33' is not a dtype"),
        (lambda each: each["file"].update(offset=-4), "is not a part of a file"),
        (lambda each: each["file"].update(nbytes="64"), "is not a part of a file"),
        (lambda each: each["file"].update(nbytes=60), "has 60 bytes, but the module was made for float32"),
        (lambda each: each.update(more=1), "unexpected keyword argument 'more'"),
    ],
    ids=["dtype", "shape", "negative", "symbolic", "passed as", "offset", "length", "size", "field"],
)
def test_edited_manifest(saved, edit, message):
    path = saved.with_name("m.manifest.json")
    manifest = json.loads(path.read_text())
    edit(manifest["weights"]["first.bias"])
    path.write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match=message):
        link(saved)


def place_elsewhere(saved: Path, name: str) -> str:
    """Move the weights to a directory beside that of the module, and return the path there."""
    other = saved.parents[1] / "other"
    other.mkdir()
    saved.with_name("w.safetensors").rename(other / name)
    return str(other / name)


@pytest.mark.parametrize(
    "place",
    [
        lambda saved: place_elsewhere(saved, "w.safetensors"),
        lambda saved: f"../{Path(place_elsewhere(saved, 'w.safetensors')).parent.name}/w.safetensors",
        lambda saved: f"sub/../../{Path(place_elsewhere(saved, 'w.safetensors')).parent.name}/w.safetensors",
        lambda saved: saved.with_name("here").symlink_to(place_elsewhere(saved, "w.safetensors")) or "here",
        lambda saved: saved.with_name("here").symlink_to(Path(place_elsewhere(saved, "w")).parent) or "here/w",
    ],
    ids=["absolute", "parent", "parent of a part", "link", "link to a directory"],
)
def test_weights_outside_of_the_manifests_directory(lowered, tmp_path, place):
    saved = tmp_path / "module" / "m.mlirbc"
    saved.parent.mkdir()
    (saved.parent / "sub").mkdir()
    lowered.save(saved, weights=saved.with_name("w.safetensors"))
    named = place(saved)
    path = saved.with_name("m.manifest.json")
    manifest = json.loads(path.read_text())
    for each in manifest["weights"].values():
        each["file"]["path"] = named
    path.write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="is outside of the manifest's directory") as caught:
        link(saved)
    assert "; for files elsewhere: --trust, or trust=True" in str(caught.value)
    assert str(link(saved, trust=True)) == str(lowered.linked)


def test_index_outside_of_its_directory(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    for name in ("/w.safetensors", "../w.safetensors", "a/../../w.safetensors"):
        index.write_text(json.dumps({"weight_map": {"w": name}}))
        with pytest.raises(UsageError, match="which is outside of its directory"):
            stored_in(tmp_path)


def test_resource_of_another_size(tmp_path):
    """MLIR does not check it: compiled code would read beyond the data."""
    text = """func.func private @f() attributes {g = dense_resource<w> : tensor<1000xf32>}
{-# dialect_resources: { builtin: { w: "0x040000000000803F" } } #-}"""
    (tmp_path / "m.mlir").write_text(text)
    with pytest.raises(UsageError, match=r"a resource of type tensor<1000xf32> has data of another size"):
        read_untrusted_module(tmp_path / "m.mlir")


def test_invalid_arguments(saved, lowered, model):
    with pytest.raises(UsageError, match="m.mlirbc': 'utf-8' codec can't decode"):
        link(saved, manifest=saved)
    with pytest.raises(UsageError, match="there is no file"):
        link(saved.parent)
    with pytest.raises(UsageError, match="a module is Lowered.module, or a file of one, and not of type Lowered"):
        link(lowered)
    with pytest.raises(UsageError, match="a manifest is Lowered.manifest, .* and not of type int"):
        link(lowered.module, model, 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a manifest is Lowered.manifest, .* and not of type str"):
        read_weights("m.manifest.json", model)  # type: ignore[arg-type]


def test_moved_folder(saved, lowered, tmp_path):
    saved.parent.rename(moved := tmp_path.with_name(f"{tmp_path.name}-moved"))
    assert str(link(moved / "m.mlirbc")) == str(lowered.linked)
    moved.rename(tmp_path)


def test_text_and_bytecode_link_alike(lowered, tmp_path):
    lowered.save(tmp_path / "m.mlir")
    assert "dialect_resources" not in (tmp_path / "m.mlir").read_text()
    assert str(link(tmp_path / "m.mlir", lowered.exported["main"])) == str(lowered.linked)


def test_missing_weights_and_files(lowered, model, tmp_path):
    lowered.save(tmp_path / "m.mlirbc")
    with pytest.raises(UsageError, match="does not say where 3 of 3 weights are"):
        link(tmp_path / "m.mlirbc")
    with pytest.raises(UsageError, match="pass its manifest"):
        link(lowered.module, model)
    with pytest.raises(UsageError, match="there is no file '.*gone.mlirbc'"):
        link(tmp_path / "gone.mlirbc", model, lowered.manifest)
    (tmp_path / "m.manifest.json").unlink()
    with pytest.raises(UsageError, match="there is no manifest '.*m.manifest.json'"):
        link(tmp_path / "m.mlirbc", model)
    (tmp_path / "bad.mlirbc").write_text("nonsense")
    with pytest.raises(UsageError, match="is not a module that MLIR reads"):
        link(tmp_path / "bad.mlirbc", model, lowered.manifest)
    with pytest.raises(UsageError, match="weights come from a state dict, .* and not from int"):
        link(lowered.module, 3, lowered.manifest)  # type: ignore[arg-type]


def test_module_with_renamed_resources(lowered, model, tmp_path):
    """MLIR renames the resources of a second copy in one context; the names are not guessed."""
    lowered.save(tmp_path / "m.mlirbc")
    context = new_context()
    first, second = (ir.Module.parseFile(str(tmp_path / "m.mlirbc"), context) for _ in range(2))
    assert str(link(first, model, lowered.manifest)) == str(lowered.linked)
    with pytest.raises(UsageError, match="the module does not name what its manifest lists: .*read it into a new one"):
        link(second, model, lowered.manifest)


def test_weights_as_arguments_are_passed_by_the_caller(model):
    taken = lower(model, X, output_type="linalg-on-tensors", weights="args")
    with pytest.raises(UsageError, match="takes its weights as arguments"):
        link(taken.module, model, taken.manifest)
    assert read_weights(taken.manifest, model).keys() == taken.manifest.weights.keys()
    function = JitBackend().load(taken.module)
    with pytest.raises(UsageError, match="no weight was given for"):
        Caller(taken.manifest, {"main": function})
    for value, kind in (
        (3, "is of type int, and not a tensor"),
        (torch.ones(16, device="meta"), "is on the meta device"),
    ):
        with pytest.raises(UsageError, match=f"the weight 'first.bias' {kind}"):
            Caller(taken.manifest, {"main": function}, {**model.state_dict(), "first.bias": value})  # type: ignore[dict-item]


class Offset(torch.nn.Module):
    def __init__(self, offset: torch.Tensor):
        super().__init__()
        self.register_buffer("offset", offset)

    def forward(self, x):
        return x + self.offset


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16])
def test_converted_elements_without_values_are_refused_for_tosa(dtype):
    """MLIR folds ``tosa.cast`` of such a resource without end."""
    for weight in torch.tensor(1, dtype=dtype), torch.ones(1, dtype=dtype):
        with pytest.raises(UsageError, match=f"the weight 'offset' has one element, of {dtype}, and .* converts it"):
            lower(Offset(weight), X, output_type="tosa", weights="external")
    assert torch.equal(lower(Offset(weight), X, output_type="tosa", weights="args").run(X), X + 1)
    assert torch.equal(lower(Offset(weight.float()), X, output_type="tosa", weights="external").run(X), X + 1)


def test_inline_weights_are_an_error(model, tmp_path):
    inline = lower(model, X, output_type="linalg-on-tensors")
    assert inline.linked is inline.module
    for wrong in (
        lambda: inline.with_weights(model),
        lambda: inline.save(tmp_path / "m.mlir", tmp_path / "w.safetensors"),
    ):
        with pytest.raises(UsageError, match="the weights are in the module: lower with weights='external'"):
            wrong()


def test_isolated_lowering(model, lowered):
    """Passes there may change the type of a resource, and MLIR then its name."""

    class Picks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("order", torch.randperm(4))
            self.register_buffer("order_1", torch.randperm(4))

        def forward(self, x):
            return x[self.get_buffer("order")] + x[self.get_buffer("order_1")] * 10

    picks, x = Picks(), torch.arange(4.0)
    apart = lower(picks, x, output_type="linalg-on-tensors", weights="external", isolate=True)
    assert {each.name for each in apart.manifest.weights.values()} == {"order", "order_1"}
    torch.testing.assert_close(apart.run(x), picks(x))


def test_manifest_round_trips(saved):
    manifest = Manifest.from_json(text := saved.with_name("m.manifest.json").read_text())
    assert manifest.to_json() == text
    assert all(each.file is not None for each in manifest.weights.values())


@pytest.mark.parametrize("name", ["a", "layer.0.weight", 'a"b\\c', "ä b", "1", "a>b", "x/y"])
def test_any_name_is_a_resource_key(name):
    with new_context() as context:
        value = elided_resource(name, ir.Type.parse("tensor<2xf32>"))
        assert key_of(value) == name
        module = ir.Module.parse("module {}")
        module.operation.attributes["test.held"] = value
        again = ir.Module.parse(str(module), new_context())
        ((_, _, read),) = resources_in(again.operation)
        assert key_of(read) == name
        assert context is not again.context


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_backends_reject_modules_without_their_weights(model, output_type):
    elided = lower(model, X, output_type=output_type, weights="external")
    with pytest.raises(UsageError, match="the weight '.*' is elided from the module: add it with fx_importer.link"):
        JitBackend().load(elided.module)


@pytest.mark.parametrize("policy", ["external", "args"])
def test_failed_save_leaves_nothing(model, tmp_path, monkeypatch, policy):
    apart = lower(model, X, output_type="stablehlo", weights=policy)
    (tmp_path / "m.manifest.json").mkdir()
    with pytest.raises(UsageError, match="cannot save to '.*m.manifest.json': it is a directory"):
        apart.save(tmp_path / "m.mlirbc", weights=tmp_path / "w.safetensors")
    assert [each.name for each in tmp_path.iterdir()] == ["m.manifest.json"]
    monkeypatch.setattr("fx_importer.results.save.save_text", lambda *_: 1 / 0)
    (tmp_path / "kept.mlirbc").write_text("before")
    with pytest.raises(ZeroDivisionError):
        apart.save(tmp_path / "new.mlirbc", weights=tmp_path / "w.safetensors")
    with pytest.raises(ZeroDivisionError):
        apart.save(tmp_path / "kept.mlirbc", weights=tmp_path / "w.safetensors")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept.mlirbc", "m.manifest.json"]


def test_portable_artifact_includes_external_weights(model, tmp_path):
    apart = lower(model, X, output_type="stablehlo", weights="external")
    with pytest.raises(UsageError, match="to have them elsewhere, and save a .mlir or .mlirbc file"):
        apart.save(tmp_path / "m.stablehlo", weights=tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())
    apart.save(tmp_path / "m.stablehlo")
    assert [each.name for each in tmp_path.iterdir()] == ["m.stablehlo"]
    assert model.first.weight.detach().numpy().tobytes() in (tmp_path / "m.stablehlo").read_bytes()
    lower(model, X, output_type="stablehlo", weights="args").save(
        tmp_path / "args.stablehlo", tmp_path / "w.safetensors"
    )
    assert (tmp_path / "args.manifest.json").is_file()
    assert (tmp_path / "w.safetensors").is_file()

"""Files of tensors: where each tensor is, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import serialize_file
from safetensors.torch import load_file, save_file

from fx_importer import UsageError, lower
from fx_importer.weights import save_weights, stored_in

TENSORS = {
    "w.bf16": torch.arange(6).reshape(2, 3).bfloat16(),
    "f8": torch.arange(5.0).to(torch.float8_e5m2),
    "bools": torch.tensor([True, False, True]),
    "number": torch.tensor(7, dtype=torch.int64),
    "c": torch.view_as_complex(torch.rand(3, 2)),
}


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_offsets_of_tensors(tmp_path):
    save_file(TENSORS, path := tmp_path / "t.safetensors")
    found = stored_in(path)
    assert found.keys() == TENSORS.keys()
    for name, stored in found.items():
        assert stored.type is not None
        assert bits(stored.read(stored.type)) == bits(TENSORS[name])
        assert path.read_bytes()[stored.offset :][: stored.nbytes] == bits(TENSORS[name])


def test_tensors_are_memory_mapped(tmp_path):
    save_file({"w": torch.rand(100, 100)}, path := tmp_path / "t.safetensors")
    stored = stored_in(path)["w"]
    assert stored.type is not None
    tensor = stored.read(stored.type)
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line]
    ranges = [tuple(int(end, 16) for end in line[0].split("-")) for line in maps]
    assert any(start <= tensor.data_ptr() < end for start, end in ranges)
    tensor.zero_()  # copy on write: the file is unchanged
    assert load_file(path)["w"].any()


def test_unaligned_offset(tmp_path):
    """The header is padded to eight bytes and tensors are adjacent, so an odd size misaligns those after it."""
    header = json.dumps(
        {
            "odd": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            "wide": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
        }
    ).encode()
    path = tmp_path / "t.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\1" + bits(torch.tensor([1.0, 2.0])))
    stored = stored_in(path)["wide"]
    assert stored.type is not None
    assert stored.read(stored.type).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("gone.safetensors", None, "there is no file '.*gone.safetensors' to take weights from: accepted is"),
        ("w.pt", b"", "'.*w.pt' holds no weights that can be read: accepted is a .safetensors file"),
        ("w.safetensors", b"\0" * 20, "'.*w.safetensors' is not a whole safetensors file"),
        ("model.safetensors.index.json", b"{}", "is not an index of safetensors files: KeyError: 'weight_map'"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "gone.safetensors"}}',
            "there is no file '.*gone.safetensors'",
        ),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": 3}}',
            "is not an index of safetensors files: TypeError",
        ),
        ("model.safetensors.index.json", b'{"weight_map": null}', "is not an index of safetensors files: TypeError"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "model.safetensors.index.json"}}',
            "is not a whole safetensors file",
        ),
        (".", None, "no weights in '.*': accepted is"),
    ],
    ids=str,
)
def test_files_without_weights(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        stored_in(tmp_path / name)


def test_truncated_file(tmp_path):
    save_file(TENSORS, path := tmp_path / "t.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match="is not a whole safetensors file"):
        stored_in(path)


def test_index_with_missing_tensors(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "one.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match="lists what is not there: 'b' in 'one.safetensors'"):
        stored_in(tmp_path)


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.rand(3, 4).t())
        self.b = torch.nn.Parameter(torch.rand(3))

    def forward(self):
        return self.a * self.b


@pytest.fixture
def manifest():
    return lower(Two(), output_type="torch", weights="external").manifest


def test_tensors_of_any_strides_are_written_contiguously(tmp_path, manifest):
    model = Two()
    tensors = {name: each.detach() for name, each in model.named_parameters()}
    found = save_weights(manifest, tensors, tmp_path / "w.safetensors", tmp_path)
    torch.testing.assert_close(load_file(tmp_path / "w.safetensors"), {k: v.contiguous() for k, v in tensors.items()})
    for weight in found.weights.values():
        assert weight.file is not None
        assert (weight.file.path, weight.file.name, weight.file.nbytes) == (
            "w.safetensors",
            weight.name,
            tensors[weight.name].nbytes,
        )
    assert [each.name for each in tmp_path.iterdir()] == ["w.safetensors"]


def test_existing_file_is_not_modified(tmp_path, manifest):
    tensors = {"a": torch.rand(4, 3), "b": torch.rand(3), "more": torch.rand(1)}
    save_file(tensors, path := tmp_path / "sub.safetensors")
    before = path.read_bytes(), path.stat().st_mtime_ns
    (tmp_path / "other").mkdir()
    found = save_weights(manifest, {}, path, tmp_path / "other")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert all(each.file is not None and each.file.path == str(path) for each in found.weights.values())
    save_file({"a": torch.rand(4, 3)}, path)
    with pytest.raises(UsageError, match="in one place:\n  'b' is missing"):
        save_weights(manifest, tensors, path, tmp_path)


@pytest.mark.parametrize("suffix", [".bin", ""])
def test_invalid_destinations(tmp_path, manifest, suffix):
    with pytest.raises(UsageError, match="cannot write weights to '.*', which is not there: name a .safetensors file"):
        save_weights(manifest, {}, tmp_path / f"w{suffix}")


def test_disk_without_enough_space(tmp_path, manifest, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    tensors = {name: each.detach() for name, each in Two().named_parameters()}
    with pytest.raises(
        UsageError, match="cannot save to '.*w.safetensors': it takes .* bytes, and the disk has 10 left"
    ):
        save_weights(manifest, tensors, tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


def test_disk_that_fills_up(tmp_path, manifest, monkeypatch):
    """safetensors ignores a failed flush of its last buffer, as /dev/full shows."""

    def cut(tensors, path):
        serialize_file(tensors, path)
        Path(path).write_bytes(Path(path).read_bytes()[:-3])

    monkeypatch.setattr("fx_importer.weights.writing.serialize_file", cut)
    tensors = {name: each.detach() for name, each in Two().named_parameters()}
    with pytest.raises(UsageError, match="cannot save to '.*w.safetensors': safetensors could not write all of it"):
        save_weights(manifest, tensors, tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


def test_dtype_that_safetensors_lacks(tmp_path):
    class Wide(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("held", torch.zeros(3, dtype=torch.complex128))

        def forward(self):
            return self.get_buffer("held").clone()

    lowered = lower(Wide(), output_type="torch", weights="external")
    with pytest.raises(UsageError, match="safetensors files hold no torch.complex128, as 'held' is"):
        lowered.save(tmp_path / "m.mlir", weights=tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())

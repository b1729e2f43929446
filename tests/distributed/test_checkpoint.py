"""Folders of torch.distributed.checkpoint from others: read as plain data, within the folder."""

from __future__ import annotations

import collections
import functools
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_saver import save

from fx_importer import UsageError
from fx_importer.distributed.checkpoint import Checkpoint
from fx_importer.distributed.pickle_records import read_pickle

TENSORS = {
    "a": torch.arange(12.0).reshape(3, 4).bfloat16(),
    "inner": {"b": torch.arange(5), "number": 3, "scalar": torch.tensor(2.0), "empty": torch.empty(0, 3)},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "checkpoint"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that no process group is there
        save(dict(TENSORS), checkpoint_id=folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "checkpoint"))


def test_tensors_are_read_by_parts(saved):
    checkpoint = Checkpoint(saved)
    assert list(checkpoint.tensors) == ["a", "inner.b", "inner.scalar", "inner.empty"]
    assert torch.equal(checkpoint["a"][1:3, 2:4], TENSORS["a"][1:3, 2:4])
    assert torch.equal(checkpoint["inner.b"][(slice(1, 4),)], torch.arange(1, 4))
    assert checkpoint["inner.scalar"][()].item() == 2
    assert checkpoint["inner.empty"][0:0, 0:3].shape == (0, 3)


class Call:
    """An object whose pickle calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.reduced = function, arguments

    def __reduce__(self) -> Any:
        return self.reduced


def changed(folder: Path, change: Callable[[Metadata], Any]) -> None:
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    new = change(metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata if new is None else new))


def stored(metadata: Metadata, **fields: Any) -> None:
    for place in metadata.storage_data.values():
        for name, value in fields.items():
            setattr(place, name, value)


@pytest.mark.parametrize(
    "call",
    [
        lambda canary: Call(Path.touch, canary),
        lambda canary: Call(os.system, f"touch {canary}"),
        lambda canary: Call(functools.reduce, Path.touch, [canary]),
        lambda canary: collections.OrderedDict({"a": Call(Path.touch, canary)}),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_pickle_calls_nothing(folder, tmp_path, call, whole):
    canary = tmp_path / "canary"

    def change(metadata: Metadata) -> Any:
        metadata.state_dict_metadata["a"] = call(canary)
        return call(canary) if whole else None

    changed(folder, change)
    canary.unlink(missing_ok=True)  # reading the pickle here called it
    with pytest.raises(UsageError, match="is not a checkpoint of torch.distributed: it"):
        Checkpoint(folder)
    assert not canary.exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda metadata: stored(metadata, relative_path="../other"), "lists '../other', which is not a file"),
        (lambda metadata: stored(metadata, relative_path="/etc/passwd"), "lists '/etc/passwd', which is not a file"),
        (lambda metadata: stored(metadata, relative_path="linked"), "is not within 'linked'"),
        (lambda metadata: stored(metadata, length=2**62), "is not within"),
        (lambda metadata: stored(metadata, offset=-1), "has no place"),
        (lambda metadata: stored(metadata, transform_descriptors=["zstd"]), "is stored by an extension"),
        (lambda metadata: metadata.storage_data.clear(), "a part of 'a' is not stored"),
        (lambda metadata: stored(metadata, length=10), "is larger than what is stored"),
        (lambda metadata: metadata.state_dict_metadata.update(a=3), "it has int where TensorStorageMetadata"),
        (lambda metadata: {"a": 1}, "it has dict where Metadata is expected"),
    ],
)
def test_edited_index_is_refused(folder, tmp_path, change, sentence):
    (tmp_path / "other").write_bytes(bytes(100_000))
    (folder / "linked").symlink_to(tmp_path / "other")
    changed(folder, change)
    with pytest.raises(UsageError, match=sentence):
        Checkpoint(folder)


def test_files_of_parts_are_checked(folder, tmp_path):
    (part,) = folder.glob("*.distcp")
    checkpoint = Checkpoint(folder)
    data = part.read_bytes()
    part.write_bytes(bytes(len(data)))
    with pytest.raises(UsageError, match="does not hold its part of 'a'"):
        checkpoint["a"][0:3, 0:4]
    torch.save(Call(Path.touch, tmp_path / "canary"), part)
    part.write_bytes(part.read_bytes().ljust(len(data), b"\0"))
    with pytest.raises(UsageError, match="does not hold its part"):
        Checkpoint(folder)["a"][0:3, 0:4]
    assert not (tmp_path / "canary").exists()


def test_cut_and_deep_pickles_are_refused(folder):
    data = (folder / ".metadata").read_bytes()
    for text in (
        b"",
        data[:100],
        b"\x80\x04" + b"(" * 100_000 + b".",
        b"\x80\x04]q\xff.",
        b"\x80\x04r\xff\xff\xff\xff.",
    ):
        (folder / ".metadata").write_bytes(text)
        with pytest.raises(UsageError, match="is not a checkpoint of torch.distributed"):
            Checkpoint(folder)


NAMED = b"\x80\x04cos\nsystem\nq\x00"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"\x80\x04})" + b"\x85" * 200_000 + b"Ns.", "it has a key", id="deep key"),
        pytest.param(b"\x80\x04})q\x00" + b"h\x00\x86q\x00" * 99 + b"Ns.", "it has a key", id="shared key"),
        pytest.param(b"\x80\x04X\x01\x00\x00\x00a)R.", "it calls a value", id="call of text"),
        pytest.param(NAMED + b")\x81)\x81.", "it calls a value", id="call of an object"),
        pytest.param(NAMED + b"}b.", "it sets the state", id="state of a class"),
        pytest.param(b"\x80\x04](N}X\x06\x00\x00\x00appendK\x01stb.", "it sets the state", id="state of a list"),
        pytest.param(b"\x80\x04X\x01\x00\x00\x00aQ.", "KeyError", id="persistent id"),
        pytest.param(b"\x80\x04\x82\x01.", "KeyError", id="extension registry"),
        pytest.param(b"\x80\x05\x96" + b"\xff" * 7 + b"\x00.", "KeyError", id="bytearray of any size"),
    ],
)
def test_hostile_pickle_is_refused(data, reason):
    with pytest.raises(ValueError, match=reason):
        read_pickle(data)


@pytest.mark.parametrize("opcode", [b"R", b"\x81"])
def test_calls_share_arguments(opcode):
    record, other = read_pickle(NAMED + b"(NNtq\x01" + opcode + b"h\x00h\x01" + opcode + b"\x86.")
    assert record.arguments is other.arguments
    assert (record.module, record.name) == ("os", "system")

"""Parameter archives of IREE, read within their bounds."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from fx_importer import UsageError
from fx_importer.engines.iree.iree_parameters import read_archive
from fx_importer.weights import stored_in

runtime = pytest.importorskip("iree.runtime")
HEADER = 88


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "w.irpa"
    index = runtime.ParameterIndex()
    index.add_splat("a", np.float32(1).tobytes(), 40)
    index.add_buffer("b", np.arange(9, dtype=np.float32))
    index.add_buffer("ü", np.arange(3, dtype=np.float32))
    index.add_buffer("none", np.empty(0, np.float32))
    index.create_archive_file(str(path))
    return path


def test_index_is_that_of_iree(archive):
    index = runtime.ParameterIndex()
    index.load(str(archive))
    files = {name: entry for name, entry in index.items() if entry.is_file}
    read = read_archive(archive)
    assert {name: length for name, (_, length) in read.items()} == {name: each.length for name, each in files.items()}
    stored = {name: each.file_storage[1] for name, each in files.items() if each.length}
    assert {name: offset for name, (offset, length) in read.items() if length} == stored


def test_linked_archives_are_read(archive, tmp_path):
    data = archive.read_bytes()
    linked = tmp_path / "linked.irpa"
    linked.write_bytes(data[:16] + struct.pack("<Q", len(data)) + data[24:] + data.replace(b"none", b"more"))
    with pytest.raises(UsageError, match="'b' is there twice"):
        stored_in(linked)


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, 2**32, 1])
def test_extreme_lengths_are_refused_or_read(archive, tmp_path, number):
    data, path = archive.read_bytes(), tmp_path / "w.irpa"
    for offset in range(0, 480, 4):
        path.write_bytes(data[:offset] + struct.pack("<Q", number) + data[offset + 8 :])
        try:
            for tensor in stored_in(path).values():
                assert tensor.offset + tensor.nbytes <= len(data)
        except UsageError:
            pass


def test_cut_archives_are_refused(archive, tmp_path):
    path = tmp_path / "w.irpa"
    for end in range(0, HEADER + 8, 5):
        path.write_bytes(archive.read_bytes()[:end])
        with pytest.raises(UsageError, match="is not a complete file"):
            stored_in(path)

"""The directory of entries: whole or not there, bounded, and never the cause of an error."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fx_importer.compiler.caching.disk_store import Store, users_store
from fx_importer.errors import UsageError

LARGE = 1 << 30


def forked(work: Callable[[], bool]) -> int:
    """Run ``work`` in a fork of this process; return its process id."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return child


pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def test_what_was_put_is_there(tmp_path: Path):
    store = Store(tmp_path / "new", LARGE)
    assert store.get("a") is None
    assert store.put("a", b"one")
    assert store.put("a", b"two")
    assert store.get("a") == b"two"
    assert len(store.entries()) == 1
    assert store.clear() == 1
    assert store.get("a") is None


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"", lambda data: data[:60] + b"?"]
)
def test_an_entry_that_is_damaged_is_none(tmp_path: Path, damage: Callable[[bytes], bytes]):
    store = Store(tmp_path, LARGE)
    store.put("a", b"some bytes and more")
    (path, _), *_ = store.entries()
    path.write_bytes(damage(path.read_bytes()))
    assert store.get("a") is None
    assert store.entries() == []


def test_the_least_recently_used_goes_first(tmp_path: Path):
    store = Store(tmp_path, 8000)
    for number in range(8):
        assert store.put(str(number), bytes(900))
        (path,) = tmp_path.glob(f"{number}.*")
        os.utime(path, (number, number))
    assert store.get("0") == bytes(900)  # and is used by that
    assert store.put("new", bytes(900))
    assert store.get("1") is None
    assert store.get("0") is not None
    assert store.get("new") is not None
    assert sum(each.st_size for _, each in store.entries()) <= 8000


def test_one_entry_does_not_drive_out_the_others(tmp_path: Path):
    store = Store(tmp_path, 8000)
    assert not store.put("a", bytes(1001))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").touch()
    store = Store(tmp_path / "file" / "cache", LARGE)
    assert not store.put("a", b"one")
    assert store.get("a") is None
    assert store.entries() == []
    assert store.clear() == 0


def test_a_file_that_cannot_grow_leaves_nothing(tmp_path: Path):
    """As on a full disk: the system refuses to write more."""

    def work() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        return not Store(tmp_path, LARGE).put("a", bytes(5000))

    _, status = os.waitpid(forked(work), 0)
    assert status == 0
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_is_killed_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def work() -> bool:
        monkeypatch.setattr(Path, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        return Store(tmp_path, LARGE).put("a", b"half")

    _, status = os.waitpid(forked(work), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    (left,) = tmp_path.iterdir()
    store = Store(tmp_path, LARGE)
    assert store.get("a") is None
    store.put("b", b"one")
    assert left.exists()  # it might be somebody's who still writes
    os.utime(left, (time.time() - 7200, time.time() - 7200))
    store.put("c", b"one")
    assert not left.exists()


def test_many_processes_at_once(tmp_path: Path):
    def work() -> bool:
        store = Store(tmp_path, 40_000)
        for number in range(150):
            key = str(number % 30)
            found = store.get(key)
            if found is not None and found != key.encode() * 1000:
                return False
            store.put(key, key.encode() * 1000)
        return True

    children = [forked(work) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert all(path.suffix == ".lowered" for path in tmp_path.iterdir())
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 40_000


def test_where_it_is_and_how_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FX_IMPORTER_CACHE_DIR", raising=False)
    monkeypatch.delenv("FX_IMPORTER_CACHE_BYTES", raising=False)
    assert users_store().limit == 2 << 30
    assert users_store().directory.name == "lowered"
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("FX_IMPORTER_CACHE_BYTES", "1000")
    assert users_store() == Store(tmp_path, 1000)
    monkeypatch.setenv("FX_IMPORTER_CACHE_BYTES", "2 GB")
    with pytest.raises(UsageError, match="FX_IMPORTER_CACHE_BYTES='2 GB' is not a number of bytes"):
        users_store()

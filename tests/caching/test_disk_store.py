"""The cache directory: entries are complete or absent, its size is bounded, and it never raises."""

from __future__ import annotations

import os
import resource
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fx_importer.caching.disk_store import Store, users_store
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


def test_put_and_get(tmp_path: Path):
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
def test_damaged_entry_is_a_miss(tmp_path: Path, damage: Callable[[bytes], bytes]):
    store = Store(tmp_path, LARGE)
    store.put("a", b"some bytes and more")
    (path, _), *_ = store.entries()
    path.write_bytes(damage(path.read_bytes()))
    assert store.get("a") is None
    assert store.entries() == []


def test_directory_is_private(tmp_path: Path):
    store = Store(tmp_path / "parent" / "new", LARGE)
    assert store.put("a", b"one")
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(store.entries()[0][1].st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o720])
def test_directory_that_others_may_write_is_not_used(tmp_path: Path, mode: int):
    store = Store(tmp_path / "new", LARGE)
    store.put("a", b"one")
    store.directory.chmod(mode)
    assert store.get("a") is None
    assert not store.put("b", b"two")
    store.directory.chmod(0o755)
    assert store.get("a") == b"one"


def test_entry_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = Store(tmp_path / "new", LARGE)
    store.put("a", b"one")
    monkeypatch.setattr(os, "geteuid", lambda: store.directory.stat().st_uid + 1)
    assert store.get("a") is None
    assert not store.put("b", b"two")


def test_entry_by_a_symbolic_link_is_not_used(tmp_path: Path):
    store, other = Store(tmp_path / "new", LARGE), Store(tmp_path / "other", LARGE)
    store.put("a", b"one")
    other.put("b", b"two")
    (other.directory / "a.lowered").symlink_to(store.directory / "a.lowered")
    assert other.get("a") is None


def test_least_recently_used_is_evicted_first(tmp_path: Path):
    store = Store(tmp_path, 8000)
    for number in range(8):
        assert store.put(str(number), bytes(900))
        (path,) = tmp_path.glob(f"{number}.*")
        os.utime(path, (number, number))
    assert store.get("0") == bytes(900)  # a read counts as a use
    assert store.put("new", bytes(900))
    assert store.get("1") is None
    assert store.get("0") is not None
    assert store.get("new") is not None
    assert sum(each.st_size for _, each in store.entries()) <= 8000


def test_entry_larger_than_the_limit_is_not_stored(tmp_path: Path):
    store = Store(tmp_path, 8000)
    assert not store.put("a", bytes(1001))
    assert list(tmp_path.iterdir()) == []


def test_directory_that_cannot_be_created(tmp_path: Path):
    (tmp_path / "file").touch()
    store = Store(tmp_path / "file" / "cache", LARGE)
    assert not store.put("a", b"one")
    assert store.get("a") is None
    assert store.entries() == []
    assert store.clear() == 0


def test_failed_write_leaves_nothing(tmp_path: Path):
    """The operating system fails writes, as on a full disk."""

    def work() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        return not Store(tmp_path, LARGE).put("a", bytes(5000))

    _, status = os.waitpid(forked(work), 0)
    assert status == 0
    assert list(tmp_path.iterdir()) == []


def test_killed_writer_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def work() -> bool:
        monkeypatch.setattr(Path, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        return Store(tmp_path, LARGE).put("a", b"half")

    _, status = os.waitpid(forked(work), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    (left,) = tmp_path.iterdir()
    store = Store(tmp_path, LARGE)
    assert store.get("a") is None
    store.put("b", b"one")
    assert left.exists()  # another process may still be writing it
    os.utime(left, (time.time() - 7200, time.time() - 7200))
    store.put("c", b"one")
    assert not left.exists()


def test_concurrent_processes(tmp_path: Path):
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


def test_directory_and_limit_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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

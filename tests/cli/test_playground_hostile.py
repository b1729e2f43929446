"""Clients and programs of the playground that mean harm: every wait has a clock, and every size a bound."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fx_importer.cli.playground import server
from fx_importer.cli.playground.compilation import EditOutcome, compile_source, new_worker, read_result
from fx_importer.cli.playground.server import ClientConnections, Playground
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.process.forking_process import ForkingProcess

LIMITS = Limits(20, 4 << 30)
RESULT = "open('result.json', 'w').write(json.dumps({'message': 'm', 'contents': True}))\n"


@pytest.fixture
def playground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Playground]:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 1)
    monkeypatch.setattr(server, "compile_source", lambda source, *_: EditOutcome(source, None))
    with Playground(0, OutputType.TOSA, LIMITS) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def connect(playground: Playground) -> socket.socket:
    return socket.create_connection(("127.0.0.1", playground.server_port), timeout=10)


def post(playground: Playground, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST /{playground.token}/compile HTTP/1.1\r\nHost: 127.0.0.1:{playground.server_port}\r\n"
    return f"{head}Content-Length: {size}\r\n\r\n".encode() + body


def answer(connection: socket.socket) -> bytes:
    """Return all that comes until the end."""
    data = b""
    while piece := connection.recv(1 << 16):
        data += piece
    return data


def answers(playground: Playground) -> bool:
    """Return whether a request of an honest client is answered, within two seconds."""
    start = time.monotonic()
    with connect(playground) as connection:
        connection.sendall(post(playground, json.dumps({"source": "s", "output_type": "tosa"}).encode()))
        return b" 200 " in answer(connection) and time.monotonic() - start < 2


@pytest.mark.parametrize("beginning", ["nothing", "headers", "body"])
def test_slow_clients_are_closed(playground: Playground, beginning: str):
    """A byte now and then does not help."""
    start = time.monotonic()
    with connect(playground) as connection:
        first = {"nothing": b"", "headers": b"GET / HTTP/1.1\r\n", "body": post(playground, b"{", 100)}[beginning]
        connection.sendall(first)
        while time.monotonic() - start < 8:
            try:
                connection.sendall(b"a")
                connection.settimeout(0.2)
                if not connection.recv(1000):
                    break
            except TimeoutError:
                assert answers(playground)
            except OSError:
                break
    assert time.monotonic() - start < 8


def test_more_connections_than_there_is_room_for(playground: Playground):
    silent = [connect(playground) for _ in range(100)]
    assert answers(playground)
    assert len(playground.clients._open) <= 64
    for connection in silent:
        connection.close()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 900_000,
        b"9" * 900_000,
        b'{"source": "\\ud800", "output_type": "tosa"}',
        b'{"source": "x", "output_type": ["tosa"]}',
        b"\xff\xfe",
    ],
)
def test_bodies_that_are_no_requests(playground: Playground, body: bytes):
    with connect(playground) as connection:
        connection.sendall(post(playground, body))
        assert b" 400 " in answer(connection)
    assert answers(playground)


def test_the_oldest_silent_connection_makes_room():
    clients, pairs = ClientConnections(2), [socket.socketpair() for _ in range(4)]
    first, second, third, fourth = (pair[0] for pair in pairs)
    assert clients.add(first)
    clients.has_sent(first)
    assert clients.add(second)
    assert clients.add(third)
    assert second.recv(1) == b""
    clients.has_sent(third)
    assert not clients.add(fourth)
    clients.remove(first)
    assert clients.add(fourth)
    for pair in pairs:
        pair[0].close()
        pair[1].close()


def test_results_are_regular_files_of_bounded_size(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "device").symlink_to("/dev/zero")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read_result(directory, "file", 4) == "text"
        for name in ("pipe", "folder", "link", "device", "huge", "missing"):
            with pytest.raises((OSError, ValueError)):
                read_result(directory, name, 4)
        with pytest.raises(ValueError, match="'file' has more than 3 bytes"):
            read_result(directory, "file", 3)
    finally:
        os.close(directory)


PROGRAMS = {
    "pipe": f"import json, os\nos.mkfifo('contents.json')\n{RESULT}os._exit(0)\n",
    "pipe as result": "import os\nos.mkfifo('result.json')\nos._exit(0)\n",
    "nested result": "import os\nopen('result.json', 'w').write('[' * 100000)\nos._exit(0)\n",
    "nested directories": ("import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nos._exit(0)\n"),
    "endless output": ("import os\nfor _ in range(200):\n    os.write(2, b'x' * 100000)\nos._exit(0)\n"),
    "process that stays": ("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nos._exit(0)\n"),
}


@pytest.fixture(scope="module")
def worker() -> Iterator[ForkingProcess]:
    with contextlib.closing(new_worker()) as made:
        compile_source("", "tosa", LIMITS, made)
        yield made


@pytest.mark.slow_rows("^pipe$", "^nested", "^endless output$")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_leave_what_they_should_not(name: str, worker: ForkingProcess):
    """The answer comes, nothing of the program stays, and what it wrote is not kept."""
    start = time.monotonic()
    outcome = compile_source(f"MARK = {name!r}\n{PROGRAMS[name]}", "tosa", LIMITS, worker)
    assert time.monotonic() - start < 18
    assert outcome.contents is None
    assert outcome.message.startswith("the program ended without a result: ")
    assert len(outcome.message) < 10_000

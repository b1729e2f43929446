"""Clients of ``llm serve`` that mean harm: others get their answers within seconds, and memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from fx_importer.llm.serving import connections
from fx_importer.llm.serving.connections import server_config

SECONDS = 1
"""The time that the servers here give a client; 20 and 30 s otherwise."""
HONEST_SECONDS = 15
"""The time in which other clients get their answer: 5.6 s were measured on a busy machine; one after another, 20."""
MEMORY = 100 << 20
"""Bytes that all of these clients add to the memory of the process, at most."""
PROGRAM = """
import os, sys
from pathlib import Path
from fx_importer.cli.commands.llm_serve import serve
from fx_importer.llm.serving import connections
connections.REQUEST_SECONDS = connections.ANSWER_SECONDS = int(sys.argv[2])
print(os.getpid(), flush=True)
serve(Path(sys.argv[1]), "jit", "cpu", "127.0.0.1", 0, None, None)
"""


@dataclass
class ServerProcess:
    process: int
    port: int

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def memory(self) -> int:
        pages = Path(f"/proc/{self.process}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def ask(self, body: bytes, path: str = "/v1/completions") -> tuple[int, bytes]:
        """Return status and answer of a request on a connection of its own."""
        with self.connect() as connection:
            with contextlib.suppress(ConnectionError):  # the server may answer before the end of the body
                connection.sendall(posted(body, path=path, close=True))
            head, _, answer = received(connection).partition(b"\r\n\r\n")
            return int(head.split(b" ")[1]), answer

    def serves(self) -> None:
        """Assert that an honest client gets its text in time."""
        start = time.monotonic()
        status, answer = self.ask(completion(max_tokens=4))
        assert status == 200, answer
        assert time.monotonic() - start < HONEST_SECONDS

    def is_idle(self) -> None:
        """Assert that no sequences of clients stay that are gone."""
        state = {}
        for _ in range(100):
            with self.connect() as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                state = json.loads(received(connection).partition(b"\r\n\r\n")[2])
            if state["free_pages"] == state["pages"] and not state["running"] + state["waiting"]:
                return
            time.sleep(0.1)
        raise AssertionError(state)


def completion(**fields: object) -> bytes:
    return json.dumps({"model": "tiny", "prompt": "Hello", "temperature": 0, **fields}).encode()


def posted(body: bytes, *, length: int | None = None, path: str = "/v1/completions", close: bool = False) -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n"
    return f"{head}{'Connection: close' if close else 'X: y'}\r\n\r\n".encode() + body


def received(connection: socket.socket) -> bytes:
    """Return all that comes until the end."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            data += piece
    return data


@pytest.fixture(scope="module")
def server(served_folder: Path) -> Iterator[ServerProcess]:
    command = [sys.executable, "-c", PROGRAM, str(served_folder), str(SECONDS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    number, line = process.stdout.readline(), process.stdout.readline()
    made = ServerProcess(int(number), int(line.rpartition(":")[2].removesuffix("/v1\n")))
    made.serves()
    before = made.memory()
    try:
        yield made
        assert made.memory() - before < MEMORY
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert "Traceback" not in errors
    assert "ERROR" not in errors


@pytest.fixture(autouse=True)
def memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Assert that the memory of the server is bounded all the time."""
    if "server" not in request.fixturenames:
        yield
        return
    server: ServerProcess = request.getfixturevalue("server")
    before, most, ended = server.memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.01):
            most = max(most, server.memory())
        most = max(most, server.memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield
    ended.set()
    watcher.join()
    assert most - before < MEMORY
    server.serves()
    server.is_idle()


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"GET /health HTTP/1.1\r\n",
        posted(b"{", length=1000),
        posted(b"[" * 66_000, length=67_000),
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET ",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["nothing", "headers", "body", "large body", "second request", "chunks"],
)
def test_slow_clients_are_closed(server: ServerProcess, beginning: bytes):
    """A byte now and then does not help."""
    start = time.monotonic()
    with server.connect() as connection:
        connection.sendall(beginning)
        connection.settimeout(0.2)
        while time.monotonic() - start < 4 * SECONDS:
            try:
                connection.sendall(b"1")
                if not connection.recv(1000):
                    break
            except TimeoutError:
                server.serves()
            except ConnectionError:
                break
    assert time.monotonic() - start < 3 * SECONDS


def test_silent_connections_make_room(server: ServerProcess):
    with contextlib.ExitStack() as stack:
        for _ in range(connections.MAX_CONNECTIONS + 50):
            stack.enter_context(server.connect())
        server.serves()
        assert len(list(Path(f"/proc/{server.process}/fd").iterdir())) < connections.MAX_CONNECTIONS + 60


def test_answers_that_nobody_reads(server: ServerProcess):
    """Of streams and of requests one after another."""
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            connection = stack.enter_context(server.connect())
            connection.sendall(posted(completion(max_tokens=90, stream=True)))
        for _ in range(10):
            connection = stack.enter_context(server.connect())
            connection.settimeout(0.2)
            with contextlib.suppress(TimeoutError, ConnectionError):
                connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20_000)
        server.serves()


def test_pipelined_requests_are_answered_in_order(server: ServerProcess):
    with server.connect() as connection:
        requests = [posted(completion(max_tokens=count), close=count == 5) for count in range(1, 6)]
        connection.sendall(b"".join(requests))
        answers = received(connection).split(b"HTTP/1.1 200 OK")[1:]
    counts = [json.loads(each.partition(b"\r\n\r\n")[2])["usage"]["completion_tokens"] for each in answers]
    assert counts == [1, 2, 3, 4, 5]


def test_clients_that_go_away(server: ServerProcess):
    """In the midst of a header, of a body, of a large body many times, of a stream, and of a text."""
    large = posted(completion(prompt="a" * 1000, user="x" * 66_000))
    text = posted(completion(max_tokens=90, n=4))
    for sent in (b"POST /v1", posted(b"{", length=10), large[:-1], large, posted(completion(stream=True)), text):
        for _ in range(10):
            with server.connect() as connection:
                connection.sendall(sent)
    server.serves()


def test_more_sequences_than_there_is_room_for(server: ServerProcess):
    """Requests at the same time are counted together."""
    with ThreadPoolExecutor(40) as pool:
        statuses = [status for status, _ in pool.map(server.ask, [completion(n=16, max_tokens=1)] * 40)]
    assert set(statuses) == {200, 429}
    assert server.ask(completion(prompt=[[1]] * 257))[0] == 400


def test_long_prompts_are_not_tokenized(server: ServerProcess):
    """While they are sent and refused, other clients are served."""
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(server.ask, completion(prompt="a b" * 5_000_000)) for _ in range(6)]
        server.serves()
    assert {each.result()[0] for each in asked} <= {413, 429}
    status, answer = server.ask(completion(prompt="a " * 1000))
    assert (status, json.loads(answer)["error"]["code"]) == (400, "context_length_exceeded")


CHAT = b'{"model": "tiny", "messages": %s}'
BODIES: dict[str, bytes] = {
    "deep": b"[" * 60_000,
    "deep field": b'{"model": "tiny", "prompt": ' + b'{"a":' * 9_000,
    "many lists": b'{"model": "tiny", "prompt": [' + b"[]," * 20_000 + b"[]]}",
    "many prompts": b'{"model": "tiny", "prompt": [' + b"[1]," * 17_000 + b"[1]]}",
    "not UTF-8": b'{"model": "\xff\xfe"}',
    "half a surrogate pair": b'{"model": "tiny", "prompt": "\\udc00"}',
    "digits": b'{"model": "tiny", "prompt": "a", "seed": ' + b"9" * 60_000 + b"}",
    "large number": b'{"model": "tiny", "prompt": "a", "temperature": ' + b"9" * 4_000 + b"}",
    "large token": b'{"model": "tiny", "prompt": [' + b"9" * 4_000 + b"]}",
    "large count": b'{"model": "tiny", "prompt": "a", "n": ' + b"9" * 4_000 + b"}",
    "NaN": b'{"model": "tiny", "prompt": "a", "temperature": NaN}',
    "infinite": b'{"model": "tiny", "prompt": "a", "top_p": 1e999}',
    "long stop": completion(stop=["x" * 300]),
    "long field": completion(**{"x" * 60_000: 1}),
    "messages": CHAT % json.dumps([{"role": "user", "content": ""}] * 97).encode(),
    "long message": CHAT % json.dumps([{"role": "x" * 2_000, "content": ""}]).encode(),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_not_requests(server: ServerProcess, name: str):
    """The answer quotes a bounded part."""
    path = "/v1/chat/completions" if BODIES[name].startswith(CHAT[:26]) else "/v1/completions"
    status, answer = server.ask(BODIES[name], path)
    assert status == 400, answer
    assert len(answer) < 2_000


def test_long_names_are_not_quoted_whole(server: ServerProcess):
    status, answer = server.ask(completion(model="x" * 60_000))
    assert (status, len(answer) < 400) == (404, True)


def test_temperatures_next_to_zero_choose_the_most_likely_token(server: ServerProcess):
    (_, expected), (status, answer) = server.ask(completion()), server.ask(completion(temperature=5e-324))
    assert status == 200
    assert json.loads(answer)["choices"] == json.loads(expected)["choices"]
    assert server.ask(completion(temperature=1e308))[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        posted(b"", length=10).replace(b"X: y", b"Transfer-Encoding: chunked") + b"zz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
    ids=["TLS", "HTTP/2", "path", "long header", "two lengths", "chunk", "websocket"],
)
def test_bytes_that_are_not_http(server: ServerProcess, data: bytes):
    with server.connect() as connection:
        connection.sendall(data)
        answer = received(connection)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))


def test_a_client_that_stops_reading_is_closed(monkeypatch: pytest.MonkeyPatch):
    """While the answer is sent, in the time for answers."""
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.5)
    ended = threading.Event()

    async def send_without_end(scope: Scope, receive: Receive, send: Send) -> None:
        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        gone = asyncio.create_task(watch())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
            await asyncio.sleep(0)
        ended.set()

    config = server_config(send_without_end)
    config.lifespan = "off"
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        with socket.create_connection(listening.getsockname()) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for _ in range(20):  # reading keeps it open
                assert connection.recv(1 << 20)
                time.sleep(0.05)
            assert not ended.is_set()
            assert ended.wait(10)
        server.should_exit = True
        thread.join()

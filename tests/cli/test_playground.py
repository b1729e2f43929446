"""The playground: who can reach it, and what programs in it cannot do."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fx_importer.cli.playground.compilation import compile_source
from fx_importer.cli.playground.page import EXAMPLE
from fx_importer.cli.playground.server import Playground
from fx_importer.errors import UsageError
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.process.child_process import child_environment

LIMITS = Limits(300, 4 << 30)


@pytest.fixture
def playground() -> Iterator[Playground]:
    with Playground(0, OutputType.TOSA, LIMITS) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def ask(playground: Playground, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", playground.server_port, timeout=300)) as connection:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_a_token_is_needed(playground: Playground):
    own = f"/{playground.token}/"
    assert playground.server_address[0] == "127.0.0.1"
    assert ask(playground, "GET", own)[0] == 200
    for path in ("/", "/x/", f"/{playground.token[:-1]}/", f"/{'x' * 32}/", f"{own}unknown"):
        assert ask(playground, "GET", path)[0] == 404
    assert ask(playground, "GET", own, Host="example.com")[0] == 404  # by a name that resolves to loopback
    body = json.dumps({"source": EXAMPLE, "output_type": "tosa"})
    assert ask(playground, "POST", "/x/compile", body)[0] == 404
    assert ask(playground, "POST", f"{own}compile", body, Origin="http://example.com")[0] == 404


@pytest.mark.parametrize(
    "body, headers",
    [
        *((body, {}) for body in ("", "{", "[]", '{"source": "x"}', '{"source": "x", "output_type": "onnx"}')),
        ("", {"Content-Length": "1000001"}),  # of a body that is not read
    ],
)
def test_requests_that_are_none(playground: Playground, body: str, headers: dict[str, str]):
    status, text = ask(playground, "POST", f"/{playground.token}/compile", body, **headers)
    assert (status, text) == (400, "a program and an output type are needed")


def test_port_in_use(playground: Playground):
    with pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1"):
        Playground(playground.server_port, OutputType.TOSA, LIMITS)


def test_compiles(playground: Playground):
    body = json.dumps({"source": EXAMPLE, "output_type": "tosa"})
    status, text = ask(playground, "POST", f"/{playground.token}/compile", body)
    answer = json.loads(text)
    assert (status, answer["message"]) == (200, "")
    status, page = ask(playground, "GET", f"/{playground.token}/{answer['page']}")
    assert status == 200
    assert "tosa.matmul" in page
    assert "playground_model.py" in page


def test_mistake_in_the_program():
    outcome = compile_source("import torch\n\ndef build(:\n", "tosa", LIMITS)
    assert outcome.page is None
    assert "importing 'playground_model' failed" in outcome.message
    assert "SyntaxError" in outcome.message


def test_unsupported_operator():
    source = (
        "import torch\n\ndef f(x):\n    return torch._standard_gamma(x)\n\n"
        "def build():\n    return f, (torch.ones(2),)\n"
    )
    outcome = compile_source(source, "stablehlo", LIMITS)
    assert "_standard_gamma" in outcome.message
    assert "playground_model.py:4" in outcome.message
    assert outcome.page is not None


@pytest.mark.new_interpreter
def test_program_that_loops():
    outcome = compile_source("while True:\n    pass\n", "tosa", Limits(5, 4 << 30))
    assert outcome.page is None
    assert "time limit of 5 s" in outcome.message


@pytest.mark.new_interpreter
def test_program_that_eats_memory():
    source = "held = []\nwhile True:\n    held.append(bytearray(b'1') * (1 << 24))\n"
    outcome = compile_source(source, "tosa", Limits(300, 1 << 30))
    assert outcome.page is None
    assert "memory limit of 1,024 MiB" in outcome.message


@pytest.mark.new_interpreter
def test_program_that_prints_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    source = (
        "import os\nfrom pathlib import Path\n\n"
        "def build():\n    raise ValueError(' '.join([*map('='.join, os.environ.items()), os.getcwd()]))\n"
    )
    outcome = compile_source(source, "tosa", LIMITS)
    assert "PATH=" in outcome.message
    assert "hunter2" not in outcome.message
    assert str(Path.home()) not in re.findall(r"HOME=(\S+)", outcome.message)


def _interruptible() -> None:
    """Undo what a shell does for commands in the background, which ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.new_interpreter
def test_server_has_no_other_variables(tmp_path: Path):
    """The command's process, whose first variables ``/proc`` shows to programs of the same user."""
    environment = child_environment() | {"SECRET_TOKEN": "hunter2"}
    command = [sys.executable, "-m", "fx_importer", "serve"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path, preexec_fn=_interruptible
    ) as served:
        try:
            assert served.stdout is not None
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/\n", served.stdout.readline())
            shown = Path(f"/proc/{served.pid}/environ").read_bytes()
            assert b"PATH=" in shown
            assert b"hunter2" not in shown
        finally:
            served.send_signal(signal.SIGINT)
    assert served.returncode == 0

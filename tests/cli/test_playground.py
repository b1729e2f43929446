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

from fx_importer.cli.playground.compilation import compile_source, new_worker
from fx_importer.cli.playground.server import Playground
from fx_importer.errors import UsageError
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.process.child_process import child_environment
from fx_importer.process.forking_process import CancelledError, ForkingProcess

LIMITS = Limits(300, 4 << 30)
EXAMPLE = """\
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(6, 6)

    def forward(self, x):
        return torch.softmax(torch.relu(self.mix(x)), -1)


def build():
    return Model(), (torch.ones(4, 6),)
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[ForkingProcess]:
    with contextlib.closing(new_worker()) as made:
        yield made


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
    *stages, answer = map(json.loads, text.splitlines())
    assert (status, answer["message"]) == (200, "")
    assert {"start", "frontend", "tosa", "contract"} <= {each["stage"] for each in stages}
    contents = json.loads(answer["contents"])
    assert any("tosa.matmul" in line for line in contents["views"][-1]["lines"])
    assert contents["files"][0]["path"].endswith("/playground_model.py")
    status, page = ask(playground, "GET", f"/{playground.token}/explorer")
    assert status == 200
    assert '<script type="application/json" id="contents"></script>' in page  # which come later


def test_mistake_in_the_program(worker: ForkingProcess):
    outcome = compile_source("import torch\n\ndef build(:\n", "tosa", LIMITS, worker)
    assert outcome.contents is None
    assert outcome.message.startswith("SyntaxError: ")
    assert outcome.message.endswith("(playground_model.py:3)")


def test_programs_do_not_see_each_other(worker: ForkingProcess):
    program = f"import subprocess, torch\nassert not hasattr(torch, 'mine')\ntorch.mine = 1\n{EXAMPLE}"
    left = program.replace("class Model", "subprocess.Popen(['sleep', '97'], start_new_session=True)\nclass Model")
    for source in (left, program):
        assert compile_source(source, "tosa", LIMITS, worker).contents is not None
        assert b"sleep\x0097\0" not in [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]


def test_program_that_is_cancelled(worker: ForkingProcess):
    with pytest.raises(CancelledError):
        compile_source("while True:\n    pass\n", "tosa", LIMITS, worker, cancelled=lambda: True)


def test_client_that_is_gone_when_a_stage_is_reported(worker: ForkingProcess):
    def gone(_stage: str) -> None:
        raise CancelledError

    with pytest.raises(CancelledError):
        compile_source(EXAMPLE, "tosa", LIMITS, worker, gone)
    assert compile_source("def build(:\n", "tosa", LIMITS, worker).message.startswith("SyntaxError")


@pytest.mark.slow
@pytest.mark.new_interpreter
def test_worker_starts_anew_after_a_program_ends_it():
    with contextlib.closing(new_worker()) as worker:
        ended = compile_source("import os\nos.kill(os.getppid(), 9)\n", "tosa", LIMITS, worker)
        assert ended.contents is None
        assert "its process ended" in ended.message
        assert compile_source(EXAMPLE, "tosa", LIMITS, worker).contents is not None


def test_unsupported_operator(worker: ForkingProcess):
    source = (
        "import torch\n\ndef f(x):\n    return torch._standard_gamma(x)\n\n"
        "def build():\n    return f, (torch.ones(2),)\n"
    )
    outcome = compile_source(source, "stablehlo", LIMITS, worker)
    assert "_standard_gamma" in outcome.message
    assert "playground_model.py:4" in outcome.message
    assert outcome.contents is not None


def test_program_that_loops(worker: ForkingProcess):
    outcome = compile_source("while True:\n    pass\n", "tosa", Limits(2, 4 << 30), worker)
    assert outcome.contents is None
    assert "time limit of 2 s" in outcome.message


def test_program_that_eats_memory(worker: ForkingProcess):
    source = "held = []\nwhile True:\n    held.append(bytearray(b'1') * (1 << 24))\n"
    outcome = compile_source(source, "tosa", Limits(300, 1 << 30), worker)
    assert outcome.contents is None
    assert "memory limit of 1,024 MiB" in outcome.message


def test_program_that_prints_the_environment(monkeypatch: pytest.MonkeyPatch, worker: ForkingProcess):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    source = (
        "import os\nfrom pathlib import Path\n\n"
        "def build():\n    raise ValueError(' '.join([*map('='.join, os.environ.items()), os.getcwd()]))\n"
    )
    outcome = compile_source(source, "tosa", LIMITS, worker)
    assert "PATH=" in outcome.message
    assert "hunter2" not in outcome.message
    assert str(Path.home()) not in re.findall(r"HOME=(\S+)", outcome.message)


def _interruptible() -> None:
    """Undo what a shell does for commands in the background, which ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
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

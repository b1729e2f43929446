"""A server that forks Python processes from one that has imported torch and this package: they start in milliseconds.

To import torch, the package and what `torch.export` needs takes five CPU seconds, and the suite starts a thousand
processes. `Server` starts the process to fork from. `ForkingPopen` replaces `subprocess.Popen` in tests: it hands the
commands of this interpreter to ``fork_client.py``, which has the server fork, passes the file descriptors on, and ends
as the fork does. `Server.path` has ``python`` and ``fx-importer`` for shells.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import marshal
import os
import runpy
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types
import warnings
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from fx_importer.process.parent_watchdog import ending_with_parent

ROOT = Path(__file__).parents[1]
CLIENT = Path(__file__).with_name("fork_client.py")
HEADER = struct.Struct("!I")
SOCKET = "socket"
FOLDER = "FX_IMPORTER_TESTS_SERVER"
"""The variable that names the folder of a server which runs already."""

Popen = subprocess.Popen
"""What starts a process that is not a fork."""


class ForkingPopen(Popen):
    """`subprocess.Popen`, but commands of this interpreter run in forks of the server."""

    forks = True
    """False where every process is to be a new interpreter."""

    def __init__(self, args: Any, *rest: Any, **options: Any):
        if self.forks and isinstance(args, list | tuple):
            before = ending_with_parent([])
            wrapped = before if list(args[: len(before)]) == before else []
            command = args[len(wrapped) :]
            if command and str(command[0]) == sys.executable and _can_run(command[1:]):
                args = [*wrapped, *the_server().client(), *command[1:]]
        super().__init__(args, *rest, **options)


def _can_run(arguments: Sequence[Any]) -> bool:
    """Whether a fork can do what these arguments of an interpreter say."""
    match list(map(os.fspath, arguments)):
        case ["-W", "ignore", *rest]:
            return bool(rest) and _can_run(rest)
        case [("-c" | "-m"), _, *_]:
            return True
        case [first, *_]:
            return not str(first).startswith("-")
    return False


class Server:
    """The process to fork from. It ends with the process that started it."""

    def __init__(self, folder: Path | str | None):
        """Start one, if it is not at ``folder`` already. Commands wait until it is ready."""
        self._started = not folder
        self.folder = Path(folder or tempfile.mkdtemp(prefix="fx-importer-forks-"))
        if not self._started:
            return
        self.path.mkdir()
        for name, arguments in (("python", ()), ("fx-importer", ("-m", "fx_importer"))):
            script = self.path / name
            script.write_text(f'#!/bin/sh\nexec {subprocess.list2cmdline([*self.client(), *arguments])} "$@"\n')
            script.chmod(0o755)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(self.folder / SOCKET))
        listening.listen(64)
        number = listening.fileno()
        command = [sys.executable, "-c", _SERVER, str(ROOT), str(number), str(self.folder)]
        self._process = Popen(command, pass_fds=[number], stdin=subprocess.PIPE)
        listening.close()

    @property
    def path(self) -> Path:
        """A folder for PATH."""
        return self.folder / "bin"

    @property
    def pid(self) -> int | None:
        """The process id, where this process has started it."""
        return self._process.pid if self._started else None

    def client(self) -> list[str]:
        """Return the command that takes the arguments of an interpreter."""
        return [sys.executable, "-I", "-S", str(CLIENT), str(self.folder / SOCKET)]

    def stop(self) -> None:
        if self._started:
            self._process.communicate()
            shutil.rmtree(self.folder, ignore_errors=True)


_SERVER = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from tests.fork_server import serve; serve(int(sys.argv[2]), sys.argv[3])"
)


@functools.cache
def the_server() -> Server:
    """Return the server of this process, or of the one that started it; start it where there is none."""
    folder = os.environ.get(FOLDER)
    server = Server(folder)
    atexit.register(server.stop)
    return server


def serve(number: int, folder: str) -> NoReturn:
    """Fork for each connection to a socket, until standard input is closed."""
    listening = socket.socket(fileno=number)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    site = [path for path in sys.path if path not in ("", str(ROOT), *inherited)]
    _import_what_takes_long()
    os.environ[FOLDER] = folder
    the_server()
    subprocess.Popen = ForkingPopen
    for each in list(weakref.finalize._registry):  # pyright: ignore[reportAttributeAccessIssue]
        each.atexit = False  # a fork cleans up after itself
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page
    gc.set_threshold(50_000, 20, 20)  # as in the tests' own process
    gc.enable()
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting = selectors.DefaultSelector()
    for file in (listening, woken, sys.stdin):
        waiting.register(file, selectors.EVENT_READ)
    clients: dict[int, socket.socket] = {}
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listening:
                client, _ = listening.accept()
                if (received := _received(client)) is None:
                    client.close()
                    continue
                request, descriptors = received
                sys.stdout.flush()
                if (child := os.fork()) == 0:
                    waiting.close()
                    for each in (listening, client, *clients.values()):
                        each.close()
                    for each in (woken, wake):
                        os.close(each)
                    _run(request, descriptors, site)
                for each in descriptors:
                    os.close(each)
                clients[child] = client
                waiting.register(client, selectors.EVENT_READ, child)
            elif key.fileobj is sys.stdin:
                for child in clients:
                    os.kill(child, signal.SIGKILL)
                os._exit(0)
            elif key.data is not None:  # the client has been killed
                waiting.unregister(key.fileobj)
                os.kill(key.data, signal.SIGKILL)
        with suppress(BlockingIOError):
            os.read(woken, 4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                client = clients.pop(ended[0])
                with suppress(KeyError):
                    waiting.unregister(client)
                with client, suppress(OSError):
                    client.sendall(HEADER.pack(os.waitstatus_to_exitcode(ended[1]) & 0xFFFF_FFFF))


def _received(client: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return a client's request and file descriptors; None if the client was killed before it sent all of them."""
    descriptors: list[int] = []
    with suppress(ConnectionError):
        header, descriptors, _, _ = socket.recv_fds(client, HEADER.size, 32)
        if len(header) == HEADER.size:
            (left,) = HEADER.unpack(header)
            text = b""
            while left > len(text) and (part := client.recv(left - len(text))):
                text += part
            if left == len(text):
                return marshal.loads(text), descriptors
    for each in descriptors:
        os.close(each)
    return None


PRELOADED = (
    *("multiprocessing.synchronize", "rich.progress", "typer"),
    *("torch._dynamo.backends.common", "torch._inductor.ir", "torch.utils.serialization.config"),
    *(f"torch_mlir.dialects.{each}" for each in ("linalg", "llvm", "memref", "scf", "tensor", "torch", "tosa")),
    *(f"fx_importer.{each}" for each in ("api.lower", "api.report", "dynamo", "results.verify", "verification")),
    *(f"fx_importer.cli.{each}" for each in ("commands.import_model", "commands.verify", "model_loading")),
    *(f"fx_importer.diagnostics.{each}" for each in ("explorer.recorder", "ir_printer", "progress_bar")),
    *(f"fx_importer.decompositions.{each}" for each in ("engine.library_composites", "nn.quantization")),
    *(f"fx_importer.engines.{each}" for each in ("jit.jit_backend", "stablehlo_interpreter.stablehlo_backend")),
    "fx_importer.engines.tosa_reference.tosa_reference_backend",
)


def _import_what_takes_long() -> None:
    """Import what most processes need, and lower two models, so that forks find caches and rules that are made.

    No thread may start here: a fork would lack it.
    """
    gc.disable()
    for name in PRELOADED:
        importlib.import_module(name)
    torch: Any = importlib.import_module("torch")
    nn, lower = torch.nn, importlib.import_module("fx_importer").lower
    convolution = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    for output_type in ("tosa", "stablehlo", "linalg-on-tensors"):
        lower(convolution, torch.ones(1, 1, 2, 2), output_type=output_type)
    encoder, tokens = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), torch.ones(1, 3, 4)
    lower(encoder, tokens, output_type="linalg-on-tensors").run(tokens)
    # At exit, TorchDynamo makes a table of times for its log, and imports a package for it: 35 ms.
    atexit.unregister(importlib.import_module("torch._dynamo.utils").dump_compile_times)
    assert len([*Path("/proc/self/task").iterdir()]) == 1


def _run(request: dict[str, Any], descriptors: list[int], site: list[str]) -> NoReturn:
    """Be the process that the request says."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _take(descriptors, request["descriptors"])
        _open_streams()
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None
        code = _exit_code(request["arguments"], site)
    except BaseException as error:
        # The frames of this file say nothing about the program.
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    finally:
        with suppress(BaseException):
            threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        os._exit(code)


def _take(given: list[int], wanted: list[int]) -> None:
    """Have each of the file descriptors ``given`` be the one that is ``wanted``."""
    spare = max([*given, *wanted]) + 1
    moved = [os.dup2(each, spare + i) for i, each in enumerate(given)]
    for each in given:
        os.close(each)
    for source, target in zip(moved, wanted, strict=True):
        os.dup2(source, target)
        os.close(source)


def _open_streams() -> None:
    """Open the standard streams as an interpreter does, of what their file descriptors are now."""
    encoding = sys.stdout.encoding
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, encoding, "backslashreplace", closefd=False)  # noqa: SIM115


def _exit_code(arguments: list[str], site: list[str]) -> int:
    """Run what the arguments of an interpreter say."""
    if arguments[:2] == ["-W", "ignore"]:
        warnings.simplefilter("ignore")
        arguments = arguments[2:]
    python_path = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = ["", *python_path, *site]
    try:
        match arguments:
            case ["-c", code, *rest]:
                sys.argv = ["-c", *rest]
                main = sys.modules["__main__"] = types.ModuleType("__main__")
                exec(compile(code, "<string>", "exec"), main.__dict__)
            case ["-m", name, *rest]:
                sys.argv = [name, *rest]
                sys.path[0] = os.getcwd()  # noqa: PTH109 - a string, as of an interpreter
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            case [script, *rest]:
                sys.argv = [script, *rest]
                sys.path[0] = str(Path(script).resolve().parent)
                runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    return 0

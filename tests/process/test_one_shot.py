"""Functions in one-shot processes: files are returned, and abnormal exits are exceptions."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fx_importer import CrashedError
from fx_importer.options import Limits
from fx_importer.process.child_process import child_environment
from fx_importer.process.one_shot import run_command, run_isolated
from fx_importer.process.scratch import Scratch

pytestmark = pytest.mark.new_interpreter


def abort() -> None:
    import os
    import sys

    print("about to abort", file=sys.stderr, flush=True)
    os.abort()


def fail() -> None:
    raise ValueError("this is the reason")


def test_function_runs_in_a_process_without_torch(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def write_modules(path):\n    import sys\n    open(path, 'w').write(' '.join(sys.modules))\n")
    namespace: dict = {}
    exec(compile(script.read_text(), str(script), "exec"), namespace)
    run_isolated("the writer", namespace["write_modules"], tmp_path / "modules")
    modules = (tmp_path / "modules").read_text().split()
    assert "torch" not in modules
    assert "fx_importer" not in modules


def test_signal_is_reported_by_name():
    with pytest.raises(CrashedError, match="(?s)^the victim was ended by the signal SIGABRT.*about to abort") as raised:
        run_isolated("the victim", abort)
    assert raised.value.signal == "SIGABRT"


def test_exception_is_reported():
    with pytest.raises(CrashedError, match="(?s)^the victim failed.*ValueError: this is the reason$") as raised:
        run_isolated("the victim", fail)
    assert raised.value.signal is None


def test_exit_code_is_reported():
    with pytest.raises(CrashedError, match="^sh failed, with the output:\n  no$"):
        run_command("sh", ["sh", "-c", "echo no >&2; exit 3"])


PARENT = """
import sys
from fx_importer.process.one_shot import output_of, run_command, run_isolated

def endless(path):
    import os
    from pathlib import Path

    Path(path).write_text(str(os.getpid()))
    sum(range(10**18))  # in one native call, without a thread switch

if __name__ != "__main__":
    pass  # the child reads this file too
elif sys.argv[1] == "function":
    run_isolated("it", endless, sys.argv[2])
else:
    command = ["sh", "-c", "echo $$ > $0; while :; do :; done", sys.argv[2]]
    output_of(command, 60) if sys.argv[1] == "output" else run_command("it", command)
"""


@pytest.mark.parametrize("kind", ["function", "command", "output"])
def test_process_ends_with_its_killed_parent(kind, tmp_path):
    script, written = tmp_path / "parent.py", tmp_path / "pid"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, script, kind, written], env=child_environment()) as parent:
        while not (written.exists() and written.read_text()):
            assert parent.poll() is None
            time.sleep(0.02)
        parent.kill()
    child = Path("/proc", written.read_text().strip(), "stat")
    for _ in range(100):
        if not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    os.kill(int(written.read_text()), signal.SIGKILL)
    raise AssertionError("it still runs")


@pytest.mark.parametrize(
    "limits, limit",
    [
        (Limits(seconds=0.3), "time limit of 0.3 s"),
        (Limits(seconds=60, memory=64 << 20), "memory limit of 64 MiB"),
    ],
)
def test_limits_of_a_command(limits, limit):
    endless = "held = []\nwhile True: held.append(bytearray(1 << 20))"
    command = [sys.executable, "-c", "while True: pass" if limits.memory is None else endless]
    with pytest.raises(CrashedError, match=f"^it was ended at its {limit}$") as raised:
        run_command("it", command, limits)
    assert raised.value.limit == limit


def test_scratch_is_removed():
    scratch = Scratch()
    path = scratch.path
    (path / "file").touch()
    del scratch
    gc.collect()
    assert not path.exists()

"""Functions in one-shot processes: files are returned, and abnormal exits are exceptions."""

import gc

import pytest

from fx_importer import CrashedError
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


def test_scratch_is_removed():
    scratch = Scratch()
    path = scratch.path
    (path / "file").touch()
    del scratch
    gc.collect()
    assert not path.exists()

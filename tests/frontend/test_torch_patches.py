"""Torch is patched in one file, under one lock; patches end with the last of their scopes."""

from __future__ import annotations

import ast
import gc
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._dynamo.convert_frame import compile_lock

import fx_importer
from fx_importer.frontend import torch_patches
from fx_importer.frontend.torch_patches import PATCHES, Patch, patched, tracing, without_collections

PACKAGE = Path(fx_importer.__file__).parent
PATCHING = PACKAGE / "frontend/torch_patches.py"
OWN_PROCESS = {
    *("benchmarking/engine_process.py", "benchmarking/engines.py"),
    *("cli/demo/sentence_encoder.py", "pipelines/isolated_runner_child.py", "process/forking_child.py"),
}
"""Main programs, and code that runs in child processes: what they set, they set for their whole process."""
SETTINGS = re.compile(
    r"torch\._C\._(set|enable|disable)_|torch\.(set_default_|backends\.\w+\.flags|use_deterministic)"
    r"|gc\.(enable|disable|freeze)$|warnings\.(catch_warnings|filterwarnings|simplefilter)$"
)


def patches_in(tree: ast.AST) -> Iterator[str]:
    """Yield what a module patches: uses of mock, assignments to attributes of torch, and process-wide settings."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    yield from (f"imports {name}" for name in names.values() if name.startswith("unittest"))

    def path(node: ast.AST) -> str:
        if isinstance(node, ast.Attribute):
            return f"{path(node.value)}.{node.attr}"
        return names.get(node.id, "") if isinstance(node, ast.Name) else ""

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            if re.match(r"(torch|triton|os\.environ)\b", target := path(node.value)):
                yield f"line {node.lineno} assigns to {target}"
        elif isinstance(node, ast.Call):
            called = path(node.func)
            if SETTINGS.match(called):
                yield f"line {node.lineno} calls {called}"
            sets = isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr")
            if sets and re.match(r"(torch|triton)\b", target := path(node.args[0])):
                yield f"line {node.lineno} sets an attribute of {target}"


def test_one_file_patches_torch():
    found = {
        name: patches
        for file in sorted(PACKAGE.rglob("*.py"))
        if file != PATCHING and (name := str(file.relative_to(PACKAGE))) not in OWN_PROCESS
        if (patches := [*patches_in(ast.parse(file.read_text(encoding="utf-8")))])
    }
    assert found == {}, "move it to frontend/torch_patches.py"


@pytest.mark.parametrize(
    "source",
    [
        "from unittest import mock",
        "import torch\ntorch.nn.Linear.forward = None",
        "from torch.fx import proxy\nproxy.TracerBase.f = 1",
        "from torch.fx.proxy import TracerBase\nsetattr(TracerBase, 'f', 1)",
        "import torch\ntorch._C._set_mkldnn_enabled(False)",
        "import gc\ngc.disable()",
        "from warnings import catch_warnings\nwith catch_warnings(): pass",
        "import os\nos.environ['A'] = '1'",
    ],
)
def test_the_rule_finds(source: str):
    assert len([*patches_in(ast.parse(source))]) == 1


def test_a_patch_has_a_reason_and_a_release():
    lacking = [patch.target for patch in PATCHES if len(patch.why) <= 20 or not re.search(r"\d\.\d", patch.until)]
    assert lacking == []


def test_all_patches_are_in_the_table():
    defined = {patch for patch in vars(torch_patches).values() if isinstance(patch, Patch)}
    assert defined.union(torch_patches.SIZE_COMPARISONS, torch_patches.BFLOAT16_METHODS.values()) == set(PATCHES)


class Owner:
    value = "original"


VALUE = Patch("tests:Owner.value", "", "", Owner)
NEW = Patch("tests:Owner.new", "", "", Owner)


def test_scopes_in_any_order_restore_the_original():
    scopes = [torch_patches._replaced(VALUE, number) for number in range(3)]
    for scope in scopes:
        scope.__enter__()
    assert Owner.value == 2
    for number, seen in ((1, 2), (2, 0), (0, "original")):
        scopes[number].__exit__(None, None, None)
        assert Owner.value == seen


def test_an_attribute_that_did_not_exist_is_deleted():
    with patched({NEW: 1}):
        assert Owner.new == 1  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(Owner, "new")


def test_an_error_restores():
    with pytest.raises(ZeroDivisionError), patched({VALUE: 1}):
        raise ZeroDivisionError
    assert Owner.value == "original"


def test_collections_stop_until_the_last_thread_ends():
    inside, leave = threading.Barrier(3), threading.Barrier(3)

    def work():
        with without_collections():
            inside.wait(10)
            leave.wait(10)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(10)
    assert not gc.isenabled()
    leave.wait(10)
    for thread in threads:
        thread.join()
    assert gc.isenabled()


def test_dynamo_and_we_share_a_lock():
    with tracing(), tracing():
        assert compile_lock._is_owned()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_fork_undoes_patches_of_other_threads():
    entered, leave = threading.Event(), threading.Event()

    def work():
        with patched({VALUE: 1}), torch.no_grad():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait(10)
    child = os.fork()
    if child == 0:
        with patched({NEW: 2}):  # would wait forever for the lock of a thread that this process lacks
            os._exit(0 if Owner.value == "original" else 1)
    _, status = os.waitpid(child, 0)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert Owner.value == "original"

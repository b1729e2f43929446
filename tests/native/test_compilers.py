"""Native code by a clang in the PATH, where Zig is not installed."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch
from torch import nn

from fx_importer import UsageError, lower
from fx_importer.errors import NotInstalledError
from fx_importer.native.compilers import Compiler, find_compiler
from fx_importer.native.targets import target_named
from testing.native_calls import NativeCaller

_TOOLS = {"clang-19": "cc", "ld.lld-19": "ld.lld", "llvm-ar-19": "ar"}


def _only_clang(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the PATH have clang's tools alone: Zig's, which are clang's, but for the name of a CPU."""
    try:
        zig = find_compiler().program
    except NotInstalledError:
        pytest.skip("no compiler")
    for name, tool in _TOOLS.items():
        arguments = "; ".join(
            (
                "for each do shift",
                'case "$each" in -march=*|-mcpu=*) each=-mcpu=baseline ;; esac',
                'set -- "$@" "$each"',
            )
        )
        (folder / name).write_text(f'#!/bin/sh\n{arguments}; done\nexec {zig} {tool} "$@"\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.skipif(platform.system() != "Linux", reason="clang builds for Linux")
def test_builds_by_clang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 4), nn.GELU()).eval(), torch.randn(2, 8)
    lowered = lower(model, x, output_type="linalg-on-tensors")
    _only_clang(tmp_path, monkeypatch)
    compiler = find_compiler()
    assert compiler.program.name.startswith("clang")
    assert not compiler.is_zig
    shared = lowered.build(tmp_path / "net")
    (found,) = NativeCaller(lowered, shared)(x)
    torch.testing.assert_close(found, model(x))
    assert lowered.build(tmp_path / "net", kind="static").files[0].name == "libnet.a"
    with pytest.raises(UsageError, match="has no libraries for 'wasm32': install the extra native"):
        lowered.build(tmp_path / "net", target="wasm32", kind="object")


def test_programs_that_are_not_clang_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clang-98").mkdir()
    (tmp_path / "clang-97").write_text("not executable")
    for name, text in (("clang", "no program"), ("clang-format-99", "#!/bin/sh"), ("clang-19", "#!/bin/sh")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'absent'}:{tmp_path}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert find_compiler() == Compiler(tmp_path / "clang-19", False)

    def unreadable(folder: Path, pattern: str) -> None:
        raise PermissionError(folder)

    monkeypatch.setattr(Path, "glob", unreadable)
    with pytest.raises(NotInstalledError):
        find_compiler()


@pytest.mark.parametrize("cpu", ["v2", "v3"])
def test_clang_builds_for_the_processor_of_the_target(cpu: str) -> None:
    assert Compiler(Path("clang"), False).select(target_named(f"x86-64-{cpu}")) == [f"-march=x86-64-{cpu}"]

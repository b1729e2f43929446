"""Native libraries of language models: `llm build`, and the example in C++."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from fx_importer import UsageError
from fx_importer.llm import build, import_model, load
from fx_importer.native.build import Built
from fx_importer.process.optional_packages import is_installed
from testing.native_calls import aligned_memory
from tests.llm.tiny_models import save_tiny_model

pytestmark = pytest.mark.skipif(not is_installed("ziglang"), reason="the extra 'native' is not installed")

EXAMPLE = Path(__file__).parents[2] / "examples" / "generate.cpp"
PROMPT = [7, 99, 31, 250, 4]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path, Built]:
    folder = tmp_path_factory.mktemp("native")
    save_tiny_model(folder / "model", num_hidden_layers=1)
    imported = import_model(folder / "model", folder / "out", context=16)
    return folder, imported, build(imported, folder / "lm")


@pytest.mark.slow
def test_example_generates_the_tokens_of_the_jit(built, tmp_path):
    folder, imported, library = built
    expected = [token for (token,) in load(imported).tokens([PROMPT], 64)]
    assert [path.name for path in library.files] == ["liblm.so", "lm.h"]  # no second copy of a weight
    compiler, program = shutil.which("c++"), tmp_path / "generate"
    assert compiler is not None
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", folder / "lm", "-L", folder / "lm"]
    subprocess.run([compiler, *options, EXAMPLE, "-llm", f"-Wl,-rpath,{folder / 'lm'}", "-o", program], check=True)
    moved = tmp_path / "weights"
    shutil.copyfile(folder / "model" / "model.safetensors", moved)
    command = [program, "64", "--weights", moved, "--ids", *map(str, PROMPT)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [*map(int, printed.split())] == expected


@pytest.mark.slow
@pytest.mark.parametrize("position", [16, -1, 1 << 40])
def test_positions_outside_of_the_context_have_a_status(built, position):
    folder, _, library = built
    code, weights, state = ctypes.CDLL(str(library.files[0])), ctypes.c_void_p(), ctypes.c_void_p()
    paths = (ctypes.c_char_p * 1)(str(folder / "model" / "model.safetensors").encode())
    assert code.lm_map_weights(paths, ctypes.byref(weights)) == 0
    nbytes = library.library.state_bytes
    memory, arena = aligned_memory(nbytes + 64), aligned_memory(1 << 20)
    pointer = ctypes.c_void_p(memory.data_ptr())
    assert code.lm_create(weights, pointer, ctypes.c_size_t(nbytes), ctypes.byref(state)) == 0
    assert not memory[:nbytes].any()
    guard = memory[nbytes:].clone()
    numbers = [(ctypes.c_int64 * 1)(number) for number in (3, position, 0)]
    logits = (ctypes.c_float * 257)()
    last = [ctypes.c_void_p(arena.data_ptr()), ctypes.c_size_t(arena.numel())]
    status = code.lm_decode(state, weights, *numbers, logits, *last)
    assert status >= 32
    assert memory[nbytes:].equal(guard)
    code.lm_unmap_weights(weights)


@pytest.mark.slow
def test_other_weights_are_refused(built, tmp_path):
    folder, _, library = built
    save_tiny_model(tmp_path / "other", seed=1, num_hidden_layers=1)
    code, weights = ctypes.CDLL(str(library.files[0])), ctypes.c_void_p()
    for path in (tmp_path / "other" / "model.safetensors", tmp_path / "missing", folder / "model" / "config.json"):
        assert code.lm_map_weights((ctypes.c_char_p * 1)(str(path).encode()), ctypes.byref(weights)) == 7
        assert not weights.value


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kind": "c"}, "no kind 'c' of a language model: accepted are shared, static, object"),
        ({"target": "cortex-m4", "kind": "static"}, "cortex-m4 does not map files"),
        ({"output": "math"}, "would hide the one of the C library"),
    ],
)
def test_what_cannot_be_built_is_refused(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        build(tmp_path / "imported", tmp_path / options.pop("output", "lm"), **options)
    assert not [*tmp_path.iterdir()]

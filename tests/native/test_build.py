"""Libraries of native code, called as C programs call them."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import Dim, export

from fx_importer import UsageError, lower
from fx_importer.errors import RandomNumbersWarning
from fx_importer.native.build import Built
from fx_importer.native.compilers import find_compiler
from fx_importer.process.optional_packages import is_installed
from fx_importer.results.lowered import Lowered
from testing.native_calls import NativeCaller, StatusError, aligned_memory

pytestmark = pytest.mark.skipif(not is_installed("ziglang"), reason="the extra 'native' is not installed")


class Net(torch.nn.Module):
    """A convolution, a linear layer and a softmax."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.linear = torch.nn.Linear(4 * 16, 10)

    def forward(self, x):
        """Return probabilities."""
        return torch.softmax(self.linear(torch.relu(self.convolution(x)).flatten(1)), -1)


class Steps(torch.nn.Module):
    """An embedding, a running sum of its rows and a count of calls."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 8)
        self.register_buffer("total", torch.full((8,), 0.5))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens):
        """Return the sum and the number of calls so far."""
        self.total += self.table(tokens).sum(0)
        self.calls += 1
        return self.total * 1, self.calls + 0


class Rows(torch.nn.Module):
    """The rows of the embedding of `Steps`."""

    def __init__(self, steps: Steps):
        super().__init__()
        self.table = steps.table

    def forward(self, tokens):
        """Return the rows, scaled."""
        return self.table(tokens) * 2


@pytest.fixture(scope="module")
def net(tmp_path_factory) -> tuple[Net, torch.Tensor, Built, NativeCaller]:
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 1, 4, 4)
    lowered = lower(model, x, output_type="linalg-on-tensors")
    built = lowered.build(tmp_path_factory.mktemp("net") / "net")
    return model, x, built, NativeCaller(lowered, built)


@pytest.fixture(scope="module")
def steps(tmp_path_factory) -> tuple[Steps, Lowered, Built]:
    torch.manual_seed(0)
    model = Steps().eval()
    tokens, n = torch.tensor([1, 5, 9]), Dim("n", min=1, max=64)
    programs = {
        "step": export(model, (tokens,), dynamic_shapes=({0: n},)),
        "rows": export(Rows(model), (tokens,), dynamic_shapes=({0: n},)),
    }
    lowered = lower(programs, output_type="linalg-on-tensors", mutation="functional")
    built = lowered.build(tmp_path_factory.mktemp("steps") / "steps", weights="file")
    return model, lowered, built


def _mapped(built: Built) -> ctypes.c_void_p:
    code, weights = ctypes.CDLL(str(built.files[0])), ctypes.c_void_p()
    assert code.steps_map_weights(str(built.files[2]).encode(), ctypes.byref(weights)) == 0
    return weights


def test_library_computes_what_eager_does(net):
    model, x, built, call = net
    assert [path.name for path in built.files] == ["libnet.so", "net.h"]
    torch.testing.assert_close(call(x)[0], model(x))
    assert built.files[0].stat().st_size < 40_000


def test_c_program_uses_the_header(net, tmp_path):
    model, x, built, _ = net
    expected = model(x)[0]
    source = tmp_path / "program.c"
    values = ", ".join(f"{value!r}f" for value in x.flatten().tolist())
    source.write_text(
        '#include "net.h"\n#include <stdio.h>\n#include <stdlib.h>\nint main(void) {\n'
        f"  static const float x[NET_RUN_X_COUNT] = {{{values}}};\n  float y[NET_RUN_OUTPUT_COUNT];\n"
        "  void *arena = aligned_alloc(64, NET_RUN_ARENA_BYTES);\n"
        "  int status = net_run(x, y, arena, NET_RUN_ARENA_BYTES);\n"
        "  if (status) { puts(net_status_text(status)); return 1; }\n"
        '  for (int i = 0; i < 10; i++) printf("%.9g\\n", y[i]);\n'
        "  free(arena);\n  return 0;\n}\n"
    )
    folder = built.files[0].parent
    options = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-I", str(folder), "-L", str(folder), f"-Wl,-rpath,{folder}"]
    program = tmp_path / "program"
    subprocess.run(["cc", "-std=c11", *options, str(source), "-lnet", "-lm", "-o", str(program)], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    torch.testing.assert_close(torch.tensor([*map(float, printed)]), expected)
    if shutil.which("c++"):
        subprocess.run(
            ["c++", "-std=c++11", *options[:6], "-fsyntax-only", "-x", "c++", str(built.files[1])], check=True
        )


def test_wrong_arguments_have_a_status(net):
    _, x, built, call = net
    run, text = call.code.net_run, call.code.net_status_text
    y, arena = torch.empty(2, 10), aligned_memory(built.library.entries[0].arena + 64)
    pointer = [ctypes.c_void_p(each.data_ptr()) for each in (x, y, arena)]
    size = ctypes.c_size_t(arena.numel())
    assert run(*pointer, size) == 0
    assert text(run(None, *pointer[1:], size)) == b"a pointer is NULL"
    assert text(run(*pointer, ctypes.c_size_t(8))) == b"the arena is too small"
    shifted = ctypes.c_void_p(arena.data_ptr() + 4)
    assert text(run(*pointer[:2], shifted, size)) == b"a pointer is not aligned"
    assert text(-1) == b"an unknown status"


def test_arena_is_all_that_a_call_writes(net):
    _, x, built, call = net
    nbytes = built.library.entries[0].arena
    memory = torch.full((nbytes + 128,), 7, dtype=torch.uint8)
    start = -memory.data_ptr() % 64 + 64
    y = torch.empty(2, 10)
    pointers = [ctypes.c_void_p(each) for each in (x.data_ptr(), y.data_ptr(), memory.data_ptr() + start)]
    assert call.code.net_run(*pointers, ctypes.c_size_t(nbytes)) == 0
    assert memory[:start].eq(7).all()
    assert memory[start + nbytes :].eq(7).all()


def test_state_is_kept_and_reset(steps):
    model, lowered, built = steps
    call, reference = NativeCaller(lowered, built, _mapped(built)), lowered.caller()["step"]
    for tokens in (torch.tensor([1, 2]), torch.tensor([7] * 10)):
        total, calls = call.call(built.library.entries[0], (tokens,), {})
        expected = reference(tokens)
        torch.testing.assert_close(total, expected[0])
        assert calls == expected[1]
    assert call.code.steps_reset(call.state, call._weights) == 0
    assert call.call(built.library.entries[0], (torch.tensor([3]),), {})[1] == 1
    torch.testing.assert_close(
        call.call(built.library.entries[1], (torch.tensor([3]),), {})[0], 2 * model.table.weight[3:4]
    )


@pytest.mark.parametrize("tokens", [[100], [-1], [3, 1000]])
def test_index_out_of_range_has_a_status(steps, tokens):
    _, lowered, built = steps
    call = NativeCaller(lowered, built, _mapped(built))
    with pytest.raises(StatusError, match="index"):
        call.call(built.library.entries[1], (torch.tensor(tokens),), {})


@pytest.mark.parametrize("count", [0, 65])
def test_size_out_of_range_has_a_status(steps, count):
    _, lowered, built = steps
    call = NativeCaller(lowered, built, _mapped(built))
    assert call.arena_bytes(built.library.entries[1], {built.library.entries[1].sizes[0].name: count}) == 0 or not (
        built.library.entries[1].dimensions
    )
    with pytest.raises(StatusError, match="a size is outside of its range"):
        call.call(built.library.entries[1], (torch.zeros(count, dtype=torch.int64),), {})


def test_file_of_other_weights_has_a_status(steps, tmp_path):
    _, _, built = steps
    code, weights = ctypes.CDLL(str(built.files[0])), ctypes.c_void_p()
    for data in (
        b"",
        b"x",
        built.files[2].read_bytes()[:-1],
        built.files[2].read_bytes().replace(b"sha256", b"sha257"),
    ):
        (path := tmp_path / "other.safetensors").write_bytes(data)
        assert code.steps_map_weights(str(path).encode(), ctypes.byref(weights)) == 7
        assert not weights.value


def test_file_of_weights_is_safetensors(steps):
    from safetensors.torch import load_file

    model, _, built = steps
    tensors = load_file(built.files[2])
    torch.testing.assert_close(tensors["table.weight"], model.table.weight.detach())
    torch.testing.assert_close(tensors["total"], model.total)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"target": "pentium"}, "no target 'pentium'"),
        ({"target": "cortex-m9"}, "no target 'cortex-m9': accepted are x86-64-v2"),
        ({"target": "x86_64-linux-gnu:x86_64_v9"}, "unknown to Zig"),
        ({"target": "x86_64-linux-glibc"}, "unknown to Zig"),
        ({"target": "foo-bar-baz"}, "shared libraries are not built for 'foo-bar-baz'"),
        ({"target": "foo-bar-baz", "kind": "static"}, "unknown to Zig: unknown architecture"),
        ({"target": "thumb-linux-gnueabihf"}, "has no C library in Zig"),
        ({"target": "s390x-linux-gnu"}, "is big-endian"),
        ({"target": "x86_64-linux-gnux32"}, "has pointers of 32 bits"),
        ({"kind": "dll"}, "no kind 'dll'"),
        ({"target": "cortex-m4"}, "cortex-m4 has no shared libraries"),
        ({"target": "cortex-m4", "kind": "static", "weights": "file"}, "cortex-m4 does not map files"),
        ({"weights": "outside"}, "weights='outside' is not known"),
        ({"threads": "tbb"}, "threads='tbb' is not known: accepted is 'openmp'"),
        ({"threads": "openmp", "kind": "executable"}, "kind='executable' has one thread"),
        ({"threads": "openmp", "target": "cortex-m4", "kind": "static"}, "cortex-m4 has no OpenMP library"),
    ],
)
def test_what_cannot_be_built_is_refused(tmp_path, options, message):
    lowered = lower(torch.nn.Linear(2, 2), torch.zeros(1, 2), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match=message):
        lowered.build(tmp_path / "model", **options)
    assert not [*tmp_path.iterdir()]


def test_processor_without_instructions_of_the_target_has_a_status(net, tmp_path):
    """No processor has both FMA4 (AMD's until 2015) and AVX-512."""
    lowered = lower(net[0], net[1], output_type="linalg-on-tensors")
    for name, target, status in (("here", "host", 0), ("none", "x86_64-linux-gnu:x86_64_v4+fma4", 8)):
        code = ctypes.CDLL(str(lowered.build(tmp_path / name, target=target).files[0]))
        assert getattr(code, f"{name}_check_processor")() == status


def test_modules_of_torch_are_refused(tmp_path):
    lowered = lower(torch.nn.ReLU(), torch.zeros(1), output_type="torch")
    with pytest.raises(UsageError, match="has operations of the dialect torch"):
        lowered.build(tmp_path / "model", kind="c")


def test_a_build_writes_all_files_or_none(tmp_path):
    lowered = lower(torch.nn.ReLU(), torch.zeros(1), output_type="linalg-on-tensors")
    (tmp_path / "model.h").mkdir()
    with pytest.raises(UsageError, match="model.h': it is a directory"):
        lowered.build(tmp_path / "model", kind="c")
    assert [path.name for path in tmp_path.iterdir()] == ["model.h"]


def test_weights_that_code_does_not_reach_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fx_importer.native.build.MOST_EMBEDDED", 1000)
    lowered = lower(torch.nn.Linear(16, 32), torch.zeros(1, 16), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match="the weights take 2,048 bytes, and code reaches 1,000"):
        lowered.build(tmp_path / "model")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["a-b", "a.so", "2d", "math", "missing/model"])
def test_names_are_names_in_c(tmp_path, name):
    lowered = lower(torch.nn.ReLU(), torch.zeros(1), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match="is not a name in C|cannot write to|would hide the one of"):
        lowered.build(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_quotients_of_the_least_integer_do_not_trap(tmp_path):
    def divide(x, y):
        return torch.div(x, y, rounding_mode="trunc"), x // y, x % y

    x, y = torch.tensor([-(1 << 63), -7, 7]), torch.tensor([-1, -1, -2])
    lowered = lower(divide, torch.ones_like(x), y, output_type="linalg-on-tensors")
    quotients = NativeCaller(lowered, lowered.build(tmp_path / "divide"))(x, y)
    assert [result.tolist() for result in quotients] == [[-(1 << 63), 7, -3], [-(1 << 63), 7, -4], [0, 0, -1]]


def test_sizes_that_depend_on_values_are_refused(tmp_path):
    lowered = lower(lambda x: x[x > 0], torch.ones(4), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match="depends on values|is not known before the call"):
        lowered.build(tmp_path / "model")
    assert not [*tmp_path.iterdir()]


def test_random_numbers_begin_anew_in_each_call(tmp_path):
    """A seed in a variable would be shared by threads."""
    lowered = lower(lambda x: x + torch.rand_like(x), torch.zeros(4), output_type="linalg-on-tensors")
    with pytest.warns(RandomNumbersWarning, match="the same seed in each call of native code"):
        built = lowered.build(tmp_path / "random")
    call = NativeCaller(lowered, built)
    first, second = call(torch.zeros(4))[0], call(torch.zeros(4))[0]
    assert torch.equal(first, second)
    assert torch.equal(first, lowered.caller()(torch.zeros(4)))


def test_threads_of_openmp_compute_the_same_bits(tmp_path):
    torch.manual_seed(0)
    n = Dim("n", min=1, max=1024)
    model, x = (
        torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)),
        torch.randn(300, 64),
    )
    lowered = lower(model, x, dynamic_shapes=({0: n},), output_type="linalg-on-tensors")
    one = NativeCaller(lowered, lowered.build(tmp_path / "one"))(x)[0]
    built = lowered.build(tmp_path / "several", threads="openmp")
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(3)
    call = NativeCaller(lowered, built)
    assert b"GOMP_parallel" in built.files[0].read_bytes()
    assert call(x)[0].equal(one)
    torch.testing.assert_close(one, model(x))
    assert call(x[:1])[0].equal(one[:1])


@pytest.mark.slow_rows(unless="aarch64")
@pytest.mark.parametrize(
    "target", ["aarch64", "riscv64", "cortex-m4", "cortex-m55", "wasm32", "wasm32-simd", "x86-64-v4"]
)
def test_static_libraries_of_other_processors(net, tmp_path, target):
    model, x, _, _ = net
    built = lower(model, x, output_type="linalg-on-tensors").build(tmp_path / "net", target=target, kind="static")
    assert built.files[0].name == "libnet.a"
    listed = subprocess.run(
        [*find_compiler().command(["ar"]), "t", built.files[0]], capture_output=True, text=True, check=True
    ).stdout
    assert listed.split() == ["net_run.o", "net.o", "weights.o"]


@pytest.mark.slow
def test_program_reads_and_writes_tensors(net, tmp_path):
    model, x, _, _ = net
    lowered = lower(model, x, output_type="linalg-on-tensors")
    (program, _) = lowered.build(tmp_path / "net", kind="executable").files
    (tmp_path / "x").write_bytes(x.numpy().tobytes())
    subprocess.run([program, "run", "2", tmp_path / "x", tmp_path / "y"], check=True, capture_output=True)
    result = torch.frombuffer(bytearray(Path(tmp_path / "y").read_bytes()), dtype=torch.float32).reshape(2, 10)
    torch.testing.assert_close(result, model(x))
    np.save(tmp_path / "x.npy", x.numpy())
    subprocess.run([program, "run", "1", tmp_path / "x.npy", tmp_path / "y.npy"], check=True, capture_output=True)
    assert torch.from_numpy(np.load(tmp_path / "y.npy")).equal(result)
    for other in (x.numpy()[:1], x.double().numpy(), np.asfortranarray(x.numpy())):
        np.save(tmp_path / "x.npy", other)
        ran = subprocess.run(
            [program, "run", "1", tmp_path / "x.npy", tmp_path / "y.npy"], stderr=subprocess.PIPE, text=True
        )
        assert ran.returncode == 2
        assert (
            "x.npy: not a .npy file of {'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 4, 4), }" in ran.stderr
        )

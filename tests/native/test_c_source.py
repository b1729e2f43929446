"""C source: numbers compared with eager PyTorch, with warnings as errors, and under sanitizers."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_importer import Lowered, UsageError, lower
from tests.native.c_programs import COMPILER, SANITIZED, STRICT, Program, build_c, run_c

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

_EDGES = [0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 1e30, -1e30, math.inf, -math.inf, math.nan, 127.9, -128.9, 3e9, -3e9, 1e-41]
_INTEGERS = [0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 2**30, -(2**30) - 5]


def _floats(x: Tensor) -> tuple[Tensor, ...]:
    y = x.flip(0)
    return (
        *(torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), x.round(), x.trunc(), x.floor(), x.isnan()),
        *(x < y, x >= y, x != y, x.to(torch.bfloat16), x.to(torch.float16), x.to(torch.float16).to(torch.float32)),
        *(torch.erf(x), torch.tanh(x), x.sign(), x.abs(), torch.where(x > 0, x, -y), x.relu(), torch.clamp(x, -1, 2)),
    )


def _integers(x: Tensor) -> tuple[Tensor, ...]:
    y = x.flip(0)
    narrow = x.to(torch.int8)
    return (
        *(x + y, x - y, x * y, x & y, x | y, x ^ y, ~x, x.abs(), -x, x >> 3, x << 3, torch.maximum(x, y), x < y),
        *(x // 3, x % 3, narrow, narrow * narrow, narrow + narrow, narrow.to(torch.int64), x.to(torch.uint8), x.bool()),
        *(x.to(torch.float32), x.to(torch.int64) * y, torch.where(x > y, x, y), x.sum(), narrow >> 1),
    )


def _half(x: Tensor) -> tuple[Tensor, ...]:
    return x + x, x * 3, x @ x.mT, x.softmax(-1), x.exp().sum()


def _complex(x: Tensor) -> tuple[Tensor, ...]:
    z = torch.complex(x, x + 1)
    return torch.view_as_real(z * z), z.abs(), (z / (z + 2)).real


def _loops(x: Tensor) -> tuple[Tensor, ...]:
    return x.cumsum(0), x.sort(0).values, x.argmax(1), torch.nn.functional.pad(x, (1, 2), value=3.0), x[:, ::2].mT


_ROWS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "floats": (_floats, (torch.tensor(_EDGES),)),
    "integers": (_integers, (torch.tensor(_INTEGERS, dtype=torch.int32),)),
    "bfloat16": (_half, (torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.bfloat16),)),
    "float16": (_half, (torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.float16),)),
    "complex": (_complex, (torch.linspace(-2, 2, 6).reshape(2, 3),)),
    "loops": (_loops, (torch.linspace(-3, 3, 20).sin().reshape(4, 5),)),
    "nothing": (lambda x: (x + 1, x.sum()), (torch.zeros(0, 3),)),
}


@pytest.mark.parametrize("row", _ROWS)
def test_numbers_are_those_of_pytorch(row: str, tmp_path: Path) -> None:
    function, inputs = _ROWS[row]
    expected = function(*inputs)
    found = run_c(lower(function, *inputs, output_type="linalg-on-tensors"), inputs, tmp_path)
    rtol, atol = (2e-2, 1e-2) if "float16" in row else (None, None)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, check_stride=False, rtol=rtol, atol=atol)


def _net() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 40), nn.Softmax(-1))
    return nn.Sequential(*layers).eval(), torch.randn(1, 3, 8, 8)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_source_reads_as_c_and_fits_a_program(output_type: str, tmp_path: Path) -> None:
    """A main of C calls it with memory of its own, under AddressSanitizer and UndefinedBehaviorSanitizer."""
    model, x = _net()
    built = lower(model, x, output_type=output_type).build(tmp_path / "net", kind="c")
    assert [path.name for path in built.files] == ["net.c", "net.h"]
    source = (tmp_path / "net.c").read_text()
    assert "[2880] = {\n" in source
    assert "no error" in source
    assert "test_c_source.py" in source or "conv.py" in source
    numbers = ", ".join(number.hex() + "f" for number in x.flatten().tolist())
    main = f"""#include <stdio.h>
#include <stdlib.h>
#include "net.h"
static const float input[] = {{{numbers}}};
int main(void) {{
  float output[NET_RUN_OUTPUT_COUNT];
  void *arena = aligned_alloc(64, net_run_arena_bytes());
  int status = net_run(input, output, arena, net_run_arena_bytes());
  int refused = net_run(input, output, arena, 8);
  for (int i = 0; i < NET_RUN_OUTPUT_COUNT; ++i) printf("%a\\n", output[i]);
  free(arena);
  return status + (refused != NET_ERROR_ARENA);
}}
"""
    (tmp_path / "main.c").write_text(main)
    command = ["gcc", *STRICT[1:], "-std=c11", *SANITIZED, "-O1", "main.c", "net.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ran = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = torch.tensor([float.fromhex(line) for line in ran.stdout.split()])
    torch.testing.assert_close(found, model(x).detach().flatten())


class Counter(nn.Module):
    """A model with state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.arange(3.0))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x
        return self.total * 2


def _counter() -> Lowered:
    return lower(Counter(), torch.ones(3), output_type="linalg-on-tensors", mutation="functional")


def test_state_is_kept_between_calls(tmp_path: Path) -> None:
    built, path = build_c(_counter(), tmp_path)
    program, model, x = Program(built, path), Counter(), torch.tensor([1.0, 2.0, 3.0])
    for _ in range(3):
        status, (found,) = program.call(x)
        assert status == 0
        assert found.equal(model(x))


def test_an_index_out_of_range_is_a_status(tmp_path: Path) -> None:
    lowered = lower(lambda x, i: x[i], torch.arange(4.0), torch.tensor([0, 3]), output_type="linalg-on-tensors")
    built, path = build_c(lowered, tmp_path)
    program = Program(built, path)
    assert program.call(torch.arange(4.0), torch.tensor([1, -1]))[1][0].tolist() == [1.0, 3.0]
    status, _ = program.call(torch.arange(4.0), torch.tensor([1, 4]))
    assert "index is out of range" in built.library.messages[status - 32]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"target": "aarch64"}, "kind='c' is source for any processor, and target='aarch64'"),
        ({"weights": "file"}, "kind='c' has its weights as arrays: weights='file'"),
    ],
    ids=["target", "weights"],
)
def test_what_source_lacks(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        lower(nn.ReLU(), torch.ones(2), output_type="linalg-on-tensors").build(tmp_path / "x", kind="c", **arguments)
    assert not list(tmp_path.iterdir())


def test_functions_have_names_of_their_own(tmp_path: Path) -> None:
    """Names in C may be equal to each other, to keywords, or to functions that each library has."""

    class Names(nn.Module):
        def forward(self, status: Tensor, operator: Tensor, size_t: Tensor) -> Tensor:
            return status + operator * size_t

    x = torch.ones(2)
    program = torch.export.export(Names(), (x, x, x))
    names = ("main", "run", "create", "a b", "a_b", "run_code", "é")
    lowered = lower(dict.fromkeys(names, program), output_type="linalg-on-tensors")
    built, _ = build_c(lowered, tmp_path)
    in_c = [entry.c_name for entry in built.library.entries]
    assert in_c == ["run", "run_2", "create_2", "a_b", "a_b_2", "run_code_", "value"]


def test_arenas_beyond_memory_and_sizes_of_reshapes(tmp_path: Path) -> None:
    """A size of the arena that overflows would be a small one."""

    def pairs(x: Tensor) -> tuple[Tensor, ...]:
        return (x[:, None] * x).softmax(1).cumsum(0).sum(), torch.cat([x, x]).reshape(2, -1).cumsum(1)

    n = torch.export.Dim("n", min=2)
    lowered = lower(pairs, torch.ones(3), output_type="linalg-on-tensors", dynamic_shapes=({0: n},))
    built, path = build_c(lowered, tmp_path)
    program, x = Program(built, path), torch.arange(5.0)
    for found, expected in zip(program.call(x)[1], pairs(x), strict=True):
        torch.testing.assert_close(found, expected, check_stride=False)
    code = ctypes.CDLL(str(path))
    size = getattr(code, f"{built.library.name}_run_arena_bytes")
    size.restype = ctypes.c_size_t
    assert 10**10 < size(ctypes.c_int64(1 << 16)) < 10**12
    assert size(ctypes.c_int64((1 << 31) - 1)) == (1 << 64) - 1

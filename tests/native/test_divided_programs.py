"""Programs whose operations run on an NPU as far as Vela compiles them, and in C for the rest."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fx_importer import Lowered, UsageError
from fx_importer.cli.commands.vela import compile_model, floating_operators, lower_to_integers, quantized_call
from fx_importer.engines import JitBackend
from fx_importer.mlir.dtypes import DTYPES
from fx_importer.native.divided_program import DividedProgram, divide_program
from fx_importer.native.divided_source import write_divided
from tests.native.c_programs import COMPILER, STRICT


class Mixed(nn.Module):
    """Rows at indices between convolutions, which Ethos-U55 lacks, and sums in floating point."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x, y = torch.relu(self.first(x)), F.max_pool2d(y, 2)
        rows = self.second(x[:, :, torch.tensor([3, 1, 2])])
        sums = torch.cumsum(rows, 3)
        return rows, F.avg_pool2d(sums, 2) + y, sums, rows


@dataclass
class Divided:
    lowered: Lowered
    program: DividedProgram
    inputs: Sequence[Tensor]
    header: Path


pytestmark = pytest.mark.slow  # Vela runs for each part
for _package in ("torchao", "ethosu", "tosa_reference_model"):
    pytest.importorskip(_package)


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Divided:
    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 8, 8), torch.randn(1, 6, 2, 8))
    quantized = quantized_call(torch.export.export(Mixed().eval(), inputs))
    lowered = lower_to_integers(quantized)
    program = divide_program(lowered.module, "ethos-u55-128", (), floating_operators(lowered))
    header = tmp_path_factory.mktemp("divided") / "net.h"
    scales = (quantized[0].meta["input_scales"], quantized[0].meta["result_scales"])
    write_divided(lowered, program, header, scales)
    return Divided(lowered, program, quantized[1].args, header)


def test_operations_that_vela_refuses_and_floats_are_for_the_processor(divided: Divided) -> None:
    parts = {part.name: [op.name for op in part.operations] for part in divided.program.parts}
    assert [name for name in parts if name.startswith("cpu")]
    on_npu = [name for part in divided.program.parts if part.on_npu for name in parts[part.name]]
    assert on_npu.count("tosa.conv2d") == 2
    assert "tosa.gather" not in on_npu
    listed = "\n".join(divided.program.estimate.on_processor)
    assert "cumsum = aten.cumsum.default" in listed
    assert "tosa.gather: Non-passthrough operation (Gather)" in listed


_INVOKE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
    *(ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_size_t), ctypes.c_int),
)


def _npu(program: DividedProgram) -> Callable[..., int]:
    """Return a function that runs command streams, in the order of their calls, by the JIT."""
    parts = [part for part in program.parts if part.on_npu]
    calls = iter([(part, JitBackend().load(part.module())) for part in parts])

    def invoke(driver: int, commands: int, nbytes: int, base: Any, sizes: Any, count: int) -> int:
        part, run = next(calls)
        raw = program.npu[part.name]
        assert ctypes.string_at(commands, nbytes) == raw["cmd_data"].tobytes()

        def memory(kind: str, at: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
            start = base[int(raw[f"{kind}_region"][at])] + int(raw[f"{kind}_offset"][at])
            size = torch.Size(shape).numel() * dtype.itemsize
            return torch.frombuffer((ctypes.c_char * size).from_address(start), dtype=dtype).reshape(shape)

        types = [(value.type.shape, DTYPES[str(value.type.element_type)][0]) for value in part.inputs]
        results = run(*(memory("input", at, *kind) for at, kind in enumerate(types)))
        for at, result in enumerate(results):
            memory("output", at, result.shape, result.dtype).copy_(result)
        return 0

    return _INVOKE(invoke)


def test_a_call_in_c_computes_what_the_whole_program_does(divided: Divided) -> None:
    folder = divided.header.parent
    command = [COMPILER, *STRICT, "-O1", "-shared", "-fPIC", "-o", folder / "net.so", folder / "net.c", "-lm"]
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[:4000]
    code = ctypes.CDLL(str(folder / "net.so"))
    code.net_status_text.restype = ctypes.c_char_p
    text = divided.header.read_text()
    nbytes = int(text.partition("#define NET_ARENA_BYTES ")[2].split()[0])
    memory = torch.zeros(nbytes + 64, dtype=torch.uint8)
    arena = ctypes.c_void_p(-(-memory.data_ptr() // 64) * 64)
    expected = tree_leaves(divided.lowered.run(*divided.inputs))
    outputs = [torch.empty_like(each) for each in expected]
    tensors = [ctypes.c_void_p(each.data_ptr()) for each in (*divided.inputs, *outputs)]
    last = (None, _npu(divided.program), None)
    assert code.net_run(*tensors, arena, ctypes.c_size_t(nbytes), *last) == 0
    for output, other in zip(outputs, expected, strict=True):
        assert torch.equal(output, other)
    assert code.net_run(*tensors, arena, ctypes.c_size_t(nbytes - 1), *last) == 3
    assert code.net_run(*tensors[:-1], None, arena, ctypes.c_size_t(nbytes), *last) == 1
    failing = _INVOKE(lambda *_: 1)
    assert code.net_run(*tensors, arena, ctypes.c_size_t(nbytes), None, failing, None) == -1
    assert code.net_status_text(-1) == b"the NPU failed"


class Sums(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return torch.cumsum(super().forward(input), 1)


def test_a_file_for_the_npu_alone_says_which_file_has_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Sums(4, 4), (torch.randn(2, 4),)), file)
    with pytest.raises(UsageError, match=r"stay in floating point:[\s\S]*net\.h' would have them as C"):
        compile_model(str(file), ["ethos-u55-128"], tmp_path / "net.tflite", None)
    assert not (tmp_path / "net.tflite").exists()

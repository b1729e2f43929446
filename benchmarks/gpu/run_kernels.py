"""Run the prepared Triton kernels on a GPU of NVIDIA: ``python run_kernels.py OUT.json``.

It needs PyTorch and Triton, and nothing of this package. The driver launches each compiled kernel on PyTorch's current
stream; its result is compared with eager PyTorch in float32, beside Triton's own launch, and also on another stream
between two operations of PyTorch.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernels  # beside this file on the device
import torch

HERE = Path(__file__).parent
_DYNAMIC_SHARED, _STATIC_SHARED = 8, 48 * 1024
"""The driver's attribute for bytes of shared memory, and what needs none."""


class Kernel:
    """A kernel of ``kernels.json``, launched by the driver."""

    def __init__(self, folder: Path):
        torch.zeros(1, device="cuda")  # makes the context
        self._driver = ctypes.CDLL("libcuda.so.1")
        (self._record,) = json.loads((folder / "kernels.json").read_text())["kernels"]
        if self._record["scratch"]:
            raise ValueError(f"'{self._record['name']}' needs scratch memory")
        image, module, self._function = (folder / self._record["files"][1]).read_bytes(), *_pointers(2)
        self._call("cuModuleLoadData", ctypes.byref(module), image)
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, self._record["name"].encode())
        if self._record["shared"] > _STATIC_SHARED:
            self._call("cuFuncSetAttribute", self._function, _DYNAMIC_SHARED, self._record["shared"])

    def __call__(self, *operands: torch.Tensor) -> None:
        values = [_value(each, operands) for each in self._record["parameters"].values()] + _pointers(2)
        places = [ctypes.cast(ctypes.pointer(each), ctypes.c_void_p) for each in values]
        grid, block = self._record["grid"], (32 * self._record["num_warps"], 1, 1)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        given = (ctypes.c_void_p * len(places))(*places)
        self._call("cuLaunchKernel", self._function, *grid, *block, self._record["shared"], stream, given, None)

    def _call(self, name: str, *values: Any) -> None:
        if status := getattr(self._driver, name)(*values):
            raise RuntimeError(f"{name}: error {status} of CUDA")


def _pointers(count: int) -> list[Any]:
    return [ctypes.c_void_p(0) for _ in range(count)]


def _value(value: Any, operands: tuple[torch.Tensor, ...]) -> Any:
    """Return a parameter in C: an operand of the function, an int32 or a float32."""
    if isinstance(value, dict):
        return ctypes.c_void_p(operands[value["argument"]].data_ptr())
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int32(value)


def microseconds(call: Callable[[], object], times: int = 30) -> float:
    """Return the least mean time of ``call`` on the device among three turns."""
    best = float("inf")
    for turn in range(4):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            call()
        end.record()
        torch.cuda.synchronize()
        if turn:  # the first one warms up
            best = min(best, start.elapsed_time(end) / times * 1000)
    return round(best, 2)


def measure(name: str) -> dict[str, Any]:
    """Return the differences of a kernel from eager in float32, and the times."""
    args = kernels.arguments("cuda")[name]
    eager, own, compiled = kernels.EAGER[name], kernels.LAUNCH[name], Kernel(HERE / name)

    def difference(result: torch.Tensor, *inputs: torch.Tensor) -> float:
        return (result.float() - eager(*(each.float() for each in inputs))).abs().max().item()

    out = torch.empty_like(eager(*args))
    compiled(*args, out)
    row: dict[str, Any] = {"kernel": name, "eager": difference(eager(*args), *args)}
    row |= {"triton": difference(own(*args), *args), "compiled": difference(out, *args)}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        first = args[0] * 2
        compiled(first, *args[1:], out)
        doubled = out * 2
    stream.synchronize()
    row["other_stream"] = difference(doubled / 2, first, *args[1:])
    scale = eager(*args).float().abs().max().item()
    row["right"] = max(row["compiled"], row["other_stream"] / 4) <= max(2 * row["eager"], 1e-5 * scale)
    calls = {"eager": lambda: eager(*args), "triton": lambda: own(*args), "compiled": lambda: compiled(*args, out)}
    row["microseconds"] = {each: microseconds(call) for each, call in calls.items()}
    return row


def main(path: str) -> None:
    """Measure all kernels that were prepared."""
    rows = []
    for name in (each for each in kernels.LAUNCH if (HERE / each).is_dir()):
        try:
            rows.append(measure(name))
        except (RuntimeError, ValueError) as error:
            rows.append({"kernel": name, "right": False, "error": str(error)})
        print(json.dumps(rows[-1]), flush=True)
        Path(path).write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])

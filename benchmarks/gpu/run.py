"""Run what `benchmarks.gpu.prepare` has packed, on a device: numbers, times and memory. It needs torch and jax.

    python FOLDER/run.py --device cuda --rows rows.jsonl               # all; what the file has is not run again
    python FOLDER/run.py --device cpu --rows rows.jsonl --only tiny_bert --quick

Programs: eager PyTorch, ``torch.compile``, jax's own program where there is one, ours on XLA by `stablehlo_loader`, and
ours on IREE where its runtime is. Each is compared with eager in float64; times are medians of rounds in which all
programs take turns. A child process runs the models: one that dies costs its row.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")

Row = dict[str, Any]
LAST = ("lstm",)
"""Models that take long to compile: they are last."""


def measure(name: str, dtype: str, device: str, skip: Sequence[str], rounds: int) -> Row:
    """Return the row of a model in a dtype."""
    import torch
    from models import build  # next to this file on the device

    model, inputs = build(name, dtype)
    model, inputs = model.to(device), tuple(each.to(device) for each in inputs)
    state = {key: value.clone() for key, value in model.named_buffers()}
    wide = copy.deepcopy(model).double()
    row: Row = {"model": name, "dtype": dtype, "programs": {}}
    with torch.no_grad():
        exact = wide(*(each.double() if each.is_floating_point() else each for each in inputs))
        del wide
        calls: dict[str, Callable[[], Any]] = {}
        for program, make in PROGRAMS.items():
            if program in skip:
                continue
            for key, value in model.named_buffers():
                value.copy_(state[key])
            found: Row = {}
            row["programs"][program] = found
            try:
                start = time.perf_counter()
                call = make(name, dtype, model, inputs, device, found)
                if call is None:
                    del row["programs"][program]
                    continue
                outputs = call()
                synchronize(device)
                found["first_call"] = time.perf_counter() - start
                found["error"] = difference(outputs, exact)
                for _ in range(3):
                    call()
                synchronize(device)
                calls[program] = call
            except Exception as error:  # a row says what failed
                found["failed"] = f"{type(error).__name__}: {error}"[:400]
        for program, times in timed(calls, device, rounds).items():
            row["programs"][program]["ms"] = 1e3 * statistics.median(times)
            row["programs"][program]["spread"] = 1e3 * (max(times) - min(times))
        for program in ("eager", "inductor", "xla"):
            if program in calls:
                row["programs"][program] |= profiled(calls[program], device)
    return row


# --- programs -------------------------------------------------------------------------------------------------------


def eager(name: str, dtype: str, model: Any, inputs: Any, device: str, found: Row) -> Callable[[], Any]:
    """PyTorch."""
    import torch

    if device != "cpu":
        model(*inputs)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model(*inputs)
        found["bytes"] = torch.cuda.max_memory_allocated() - before
    return lambda: model(*inputs)


def inductor(name: str, dtype: str, model: Any, inputs: Any, device: str, found: Row) -> Callable[[], Any]:
    """``torch.compile``."""
    import torch

    torch._dynamo.reset()
    compiled = torch.compile(model)
    return lambda: compiled(*inputs)


def inductor_graphs(name: str, dtype: str, model: Any, inputs: Any, device: str, found: Row) -> Any:
    """``torch.compile(mode="reduce-overhead")``: CUDA graphs."""
    import torch

    if device == "cpu":
        return None
    torch._dynamo.reset()
    compiled = torch.compile(model, mode="reduce-overhead")
    return lambda: compiled(*inputs)


def xla(name: str, dtype: str, model: Any, inputs: Any, device: str, found: Row) -> Callable[[], Any]:
    """Ours on XLA, from tensors of PyTorch to tensors of PyTorch."""
    folder = HERE / f"{name}-{dtype}"
    held = {**model.state_dict(), **dict(model.named_buffers())}
    program = loader(folder).load(folder / "model.stablehlo", device, weights=held)
    (function,) = program._functions.values()
    analysis = function.compiled.memory_analysis()
    if analysis is not None:
        found["bytes"] = analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return lambda: program(*inputs)


def jax_own(name: str, dtype: str, model: Any, inputs: Any, device: str, found: Row) -> Callable[[], Any] | None:
    """The model written in jax, from arrays of jax to arrays of jax."""
    import jax
    from jax_models import JAX_MODELS

    if name not in JAX_MODELS:
        return None
    with jax.enable_x64(True):
        weights = {key: jax.dlpack.from_dlpack(value.detach()) for key, value in model.state_dict().items()}
        arrays = [jax.dlpack.from_dlpack(each) for each in inputs]
        with jax.default_matmul_precision("highest" if dtype == "fp32" else "default"):
            compiled = jax.jit(JAX_MODELS[name]).lower(weights, *arrays).compile()
    return lambda: compiled(weights, *arrays)


def iree(name: str, dtype: str, model: Any, inputs: Any, device: str, found: Row) -> Callable[[], Any] | None:
    """Ours on IREE, from buffers of IREE to buffers of IREE: its runtime takes no memory of PyTorch on CUDA."""
    import numpy as np
    import torch

    path = HERE / f"{name}-{dtype}" / "model.vmfb"
    if not path.exists() or importlib.util.find_spec("iree") is None:
        return None
    rt: Any = importlib.import_module("iree.runtime")
    config = rt.Config("local-task" if device == "cpu" else "cuda")
    manifest = json.loads((path.parent / "model.manifest.json").read_text())
    held, index = {**model.state_dict(), **dict(model.named_buffers())}, rt.ParameterIndex()
    for key, one in manifest["weights"].items():
        index.add_buffer(key, held[one["name"]].detach().contiguous().cpu().view(torch.uint8).numpy().reshape(-1))
    modules = [rt.create_io_parameters_module(config.vm_instance, index.create_provider("model"))]
    modules.append(rt.VmModule.mmap(config.vm_instance, str(path)))
    main = rt.load_vm_modules(*modules, config=config)[-1]["main"]
    elements = {torch.bfloat16: "BFLOAT_16", torch.float32: "FLOAT_32", torch.int64: "SINT_64"}

    def buffer(tensor: Any) -> Any:
        bits = tensor.detach().cpu().contiguous()
        bits = bits.view(torch.int16) if tensor.dtype is torch.bfloat16 else bits
        memory, usage = rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT
        element = getattr(rt.HalElementType, elements[tensor.dtype])
        allocator = config.device.allocator
        return allocator.allocate_buffer_copy(memory, usage, config.device, bits.numpy(), element)

    (function,) = manifest["functions"].values()
    left = list(inputs)
    values = [held[one["name"]] if one["kind"] == "state" else left.pop(0) for one in function["arguments"]]
    buffers = [buffer(each) for each in values]
    outputs = [at for at, one in enumerate(function["results"]) if one["kind"] == "output"]

    def call() -> Any:
        results = main(*buffers)
        return [results[at] for at in outputs] if isinstance(results, tuple) else [results]

    def on_host(array: Any) -> Any:
        bits = np.array(array.to_host())
        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16) if dtype == "bf16" else torch.from_numpy(bits)

    def first() -> Any:
        if found.get("checked"):
            return call()
        found["checked"] = True
        return [on_host(each) for each in call()]

    return first


PROGRAMS: dict[str, Callable[..., Any]] = {
    "eager": eager,
    "inductor": inductor,
    "inductor_graphs": inductor_graphs,
    "xla": xla,
    "jax": jax_own,
    "iree": iree,
}


def loader(folder: Path) -> Any:
    """Return the module next to the artifact."""
    return file_as_module(folder / "stablehlo_loader.py")


def file_as_module(path: Path) -> Any:
    """Return the module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- measurements ---------------------------------------------------------------------------------------------------


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def difference(outputs: Any, exact: Any) -> float:
    """Return the norm of the difference from ``exact``, relative to that of ``exact``."""
    import numpy as np
    import torch

    first = outputs[0] if isinstance(outputs, tuple | list) else outputs
    if not isinstance(first, torch.Tensor):
        array = np.asarray(first)
        first = torch.from_numpy(array.astype(np.float64))
    first = first.detach().double().to(exact.device)
    assert first.shape == exact.shape, f"{list(first.shape)} instead of {list(exact.shape)}"
    return float((first - exact).norm() / exact.norm())


def timed(calls: dict[str, Callable[[], Any]], device: str, rounds: int) -> dict[str, list[float]]:
    """Return seconds for a call, of each program, for each round. In a round the programs take turns."""
    counts: dict[str, int] = {}
    for program, call in calls.items():
        counts[program] = max(1, min(200, round(0.015 / _seconds(call, 3, device))))
    times: dict[str, list[float]] = {program: [] for program in calls}
    for _ in range(rounds):
        for program, call in calls.items():
            times[program].append(_seconds(call, counts[program], device))
    return times


def _seconds(call: Callable[[], Any], count: int, device: str) -> float:
    synchronize(device)
    last: Any = None
    start = time.perf_counter()
    for _ in range(count):
        last = call()
    if hasattr(last, "block_until_ready"):
        last.block_until_ready()
    synchronize(device)
    return (time.perf_counter() - start) / count


def profiled(call: Callable[[], Any], device: str) -> Row:
    """Return the number of kernels and of copies from and to the host in one call, as the profiler counts them."""
    if device == "cpu":
        return {}
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        synchronize(device)
    names = [each.name for each in profile.events() or []]
    host = [each for each in names if "HtoD" in each or "DtoH" in each]
    return {"device_events": len(names), "host_copies": len(host)}


# --- processes ------------------------------------------------------------------------------------------------------


def facts(device: str) -> Row:
    """Return the device and the versions."""
    import jax
    import torch

    named = torch.cuda.get_device_name() if device != "cpu" else "CPU"
    prepared = json.loads((HERE / "prepared.json").read_text())
    iree_there = importlib.util.find_spec("iree") is not None
    versions = {"torch": torch.__version__, "jax": jax.__version__, "python": sys.version.split()[0]}
    return {"device": named, "commit": prepared["commit"], "iree": iree_there, **versions}


def child(arguments: argparse.Namespace, wanted: list[tuple[str, str]]) -> None:
    """Measure the models one after the other, and add their rows to the file."""
    sys.path.insert(0, str(HERE))

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it took more than {arguments.seconds} s")

    signal.signal(signal.SIGALRM, stop)
    for name, dtype in wanted:
        _add(arguments.rows, {"model": name, "dtype": dtype, "began": time.time()})
        signal.alarm(arguments.seconds)
        start = time.perf_counter()
        row: Row
        try:
            row = measure(name, dtype, arguments.device, arguments.skip, 3 if arguments.quick else 9)
        except Exception as error:
            row = {"model": name, "dtype": dtype, "failed": f"{type(error).__name__}: {error}"[:400]}
        signal.alarm(0)
        row["seconds"] = time.perf_counter() - start
        _add(arguments.rows, row | facts(arguments.device))
        print(line_of(row), flush=True)


def line_of(row: Row) -> str:
    """Return a row in one line."""
    if "failed" in row:
        return f"{row['model']:24} {row['dtype']} FAILED {row['failed']}"
    cells = [
        f"{program} {one['failed'][:150]}" if "failed" in one else f"{program} {one['ms']:.3f} ({one['error']:.0e})"
        for program, one in row["programs"].items()
    ]
    return f"{row['model']:24} {row['dtype']} {row.get('seconds', 0):.0f}s  " + "  ".join(cells)


def _add(path: Path, row: Row) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def read_rows(path: Path) -> list[Row]:
    """Return the rows of the file that are complete."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in lines if "began" not in row]


def warm(arguments: argparse.Namespace, wanted: Sequence[tuple[str, str]]) -> None:
    """Compile in several processes at once, whose caches the measurements read: they wait less."""
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(arguments.rows.resolve().with_suffix(".cache")))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    count = min(arguments.warm, len(wanted))
    lists = [wanted[::-1][at::count] for at in range(count)]
    command = [sys.executable, __file__, *sys.argv[1:], "--warm", "0", "--compile"]
    children = [subprocess.Popen([*command, *("/".join(each) for each in part)]) for part in lists]
    for child in children:
        child.wait()


def compile_child(arguments: argparse.Namespace, wanted: Sequence[tuple[str, str]]) -> None:
    """Compile the models with Inductor and XLA."""
    sys.path.insert(0, str(HERE))
    import torch
    from models import build

    for name, dtype in wanted:
        model, inputs = build(name, dtype)
        model, inputs = model.to(arguments.device), tuple(each.to(arguments.device) for each in inputs)
        for program in ("xla", "jax", "inductor", "inductor_graphs"):
            with torch.no_grad(), contextlib.suppress(Exception):  # the measurement says what fails
                if program not in arguments.skip:
                    PROGRAMS[program](name, dtype, model, inputs, arguments.device, {})()


def main() -> int:
    """Run the models in a child process; start another after one has died."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--dtypes", nargs="*")
    parser.add_argument("--skip", nargs="*", default=[], choices=list(PROGRAMS))
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--seconds", type=int, default=90, help="time limit for one model")
    parser.add_argument("--warm", type=int, default=0, help="processes that compile before")
    parser.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--compile", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for names, work in ((arguments.child, child), (arguments.compile, compile_child)):
        if names is not None:
            work(arguments, [(name, dtype) for name, dtype in (each.split("/") for each in names)])
            return 0
    prepared = json.loads((HERE / "prepared.json").read_text())["rows"]
    wanted = [
        (row["model"], row["dtype"])
        for row in prepared
        if "error" not in row
        and row["model"] in (arguments.only or [row["model"]])
        and row["dtype"] in (arguments.dtypes or [row["dtype"]])
    ]
    wanted.sort(key=lambda each: (each[0] in LAST, each[1] == "fp32"))
    if arguments.warm:
        warm(arguments, wanted)
    while left := [each for each in wanted if each not in _done(arguments.rows)]:
        command = [sys.executable, __file__, *sys.argv[1:], "--child", *("/".join(each) for each in left)]
        code = subprocess.run(command, check=False).returncode
        if (still := [each for each in left if each not in _done(arguments.rows)]) and code:
            name, dtype = still[0]
            _add(arguments.rows, {"model": name, "dtype": dtype, "failed": f"the process ended with {code}"})
    print()
    for row in read_rows(arguments.rows):
        print(line_of(row))
    return 0


def _done(path: Path) -> set[tuple[str, str]]:
    return {(row["model"], row["dtype"]) for row in read_rows(path)}


if __name__ == "__main__":
    sys.exit(main())

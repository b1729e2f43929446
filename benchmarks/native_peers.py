"""Native libraries, AOTInductor and IREE on ten models: times of calls, sizes and starts.

python -m benchmarks.native_peers --json peers.json                    # what the file lacks
python -m benchmarks.native_peers --json peers.json --models bert_base # these
python -m benchmarks.native_peers --json peers.json --write            # the page, from the file
python -m benchmarks.native_peers --json blas.json --blas libopenblas.so  # with and without BLAS, and AOTInductor

One thread; the engines take turns in one process, and times are of the CPU. AOTInductor needs a C++ compiler.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.house import commit
from benchmarks.rows import DOCS, Row, add_row, parser_of, read_rows, renew
from benchmarks.run_time_models import MODELS as LARGE
from fx_importer import FxImporterError, lower
from fx_importer.native.library import inputs_of, outputs_of
from fx_importer.results.lowered import Lowered
from testing.native_calls import NativeCaller, native_dtype
from testing.op_cases import differences
from testing.zoo import UNet

PAGE = DOCS / "measurements" / "native.md"
_TURNS, _SECONDS = 7, 0.3
"""Of an engine: turns, and the time of its calls in a turn."""
Model = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


class Gru(torch.nn.Module):
    """Two layers of a GRU and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(256, 256, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of the last element."""
        return self.head(self.gru(x)[0][:, -1])


class Recommender(torch.nn.Module):
    """A network like DLRM: tables of embeddings, an MLP, products of all pairs, and an MLP."""

    def __init__(self, tables: int = 8, rows: int = 10_000, width: int = 64) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = _mlp(13, 512, 256, width)
        self.top = _mlp(width + (tables + 1) ** 2, 512, 256, 1)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """Return the probability of a click."""
        x = self.bottom(dense)
        rows = torch.stack([x, *(table(sparse[:, at]) for at, table in enumerate(self.tables))], 1)
        pairs = (rows @ rows.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([x, pairs], 1)))


def _mlp(*widths: int) -> torch.nn.Sequential:
    layers = [
        part
        for before, after in itertools.pairwise(widths)
        for part in (torch.nn.Linear(before, after), torch.nn.ReLU())
    ]
    return torch.nn.Sequential(*layers[:-1])


def _small_cnn() -> torch.nn.Module:
    nn = torch.nn
    widths = [3, 32, 64, 128]
    blocks = [
        part
        for before, after in itertools.pairwise(widths)
        for part in (nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2))
    ]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(128 * 16, 10))


def _large(name: str) -> Callable[[], Model]:
    return lambda: LARGE[name](1)


MODELS: Mapping[str, Callable[[], Model]] = {
    **{name: _large(name) for name in ("bert_base", "resnet50", "mobilenet", "vit_b_16", "llama_1b_layer_prefill")},
    "unet": lambda: (UNet(16), (torch.randn(1, 3, 128, 128),)),
    "mlp": lambda: (_mlp(256, 1024, 1024, 10), (torch.randn(32, 256),)),
    "gru": lambda: (Gru(), (torch.randn(1, 8, 256),)),  # each step is code: AOTInductor takes minutes for 64
    "dlrm": lambda: (Recommender(), (torch.randn(32, 13), torch.randint(0, 10_000, (32, 8)))),
    "small_cnn": lambda: (_small_cnn(), (torch.randn(1, 3, 32, 32),)),
}


def measure(name: str, folder: Path) -> Row:
    """Build the model ``name`` for this machine in each way, and time calls and starts."""
    program = _aoti_program()
    torch.manual_seed(0)
    model, args = MODELS[name]()
    model.eval()
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*args))
        lowered = lower(torch.export.export(model, args), output_type="linalg-on-tensors")
        begin = time.perf_counter()
        built = lowered.build(folder / name, target="host")
        row: Row = {"model": name, "native_build": time.perf_counter() - begin}
        native = NativeCaller(lowered, built).prepared(args)
        begin = time.perf_counter()
        package = torch._inductor.aoti_compile_and_package(
            torch.export.export(model, args), package_path=str(folder / "model.pt2")
        )
        row["aoti_build"] = time.perf_counter() - begin
        engines: dict[str, Callable[[], Any]] = {"eager": lambda: model(*args), "native": native}
        aoti = torch._inductor.aoti_load_package(package)
        engines["aoti"] = lambda: aoti(*args)
        try:
            iree = lowered.caller(backend="iree")
            engines["iree"] = lambda: iree(*args)
        except FxImporterError as error:
            row["iree_wrong"] = str(error)[:200]
        for engine, call in engines.items():
            wrong = [
                each for pair in zip(pytree.tree_leaves(call()), expected, strict=True) if (each := differences(*pair))
            ]
            if wrong:
                row[f"{engine}_wrong"] = wrong[0][:100]
        row |= dict(zip(engines, _times([*engines.values()], statistics.median), strict=True))
    weights = sum(each.nbytes for each in [*model.parameters(), *model.buffers()])
    row["native_bytes"] = built.files[0].stat().st_size - built.library.weights_bytes
    row["aoti_bytes"] = max(Path(package).stat().st_size - weights, 0) + _libtorch_bytes()
    row["native_start"] = _least(3, _own_program(lowered, folder / f"{name}_program", args))
    row["aoti_start"] = _least(3, [program, package, *map(_described, args)])
    return row


def measure_blas(name: str, folder: Path, blas: Path) -> Row:
    """Build the model ``name`` with and without ``blas``, and by AOTInductor, and return the least seconds of calls."""
    torch.manual_seed(0)
    model, args = MODELS[name]()
    model.eval()
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*args))
        program = torch.export.export(model, args)
        lowered = lower(program, output_type="linalg-on-tensors")
        row: Row = {"model": name}
        engines: dict[str, Callable[[], Any]] = {}
        for engine, library in (("native", None), ("native_blas", str(blas))):
            built = lowered.build(folder / f"{name}_{engine}", target="host", blas=library)
            if (used := built.library.blas) is not None and used.library is not None:
                row["soname"] = used.library.soname
                (folder / used.library.soname).symlink_to(blas.absolute())
            engines[engine] = NativeCaller(lowered, built).prepared(args)
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
        aoti = torch._inductor.aoti_load_package(package)
        engines |= {"aoti": lambda: aoti(*args), "eager": lambda: model(*args)}
        for engine, call in engines.items():
            outputs = pytree.tree_leaves(call())
            if wrong := [*filter(None, itertools.starmap(differences, zip(outputs, expected, strict=True)))]:
                row[f"{engine}_wrong"] = wrong[0][:100]
        return row | dict(zip(engines, _times([*engines.values()], min), strict=True))


def _times(calls: Sequence[Callable[[], Any]], choose: Callable[[list[float]], float]) -> list[float]:
    """Return the seconds of the CPU of each of ``calls``, which take turns, that ``choose`` returns of all turns."""
    counts: list[int] = []
    for call in calls:
        call()
        begin = time.process_time()
        call()
        counts.append(max(1, min(1000, int(_SECONDS / max(time.process_time() - begin, 1e-6)))))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(_TURNS):
        for call, count, times in zip(calls, counts, found, strict=True):
            begin = time.process_time()
            for _ in range(count):
                call()
            times.append((time.process_time() - begin) / count)
    return [choose(times) for times in found]


def _least(turns: int, command: Sequence[str | Path]) -> float:
    """Return the least seconds of a process."""
    times: list[float] = []
    for _ in range(turns):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begin)
    return min(times)


def _own_program(lowered: Lowered, path: Path, args: Sequence[torch.Tensor]) -> list[str | Path]:
    """Build a program, and return its command of one call."""
    built = lowered.build(path, target="host", kind="executable")
    entry = built.library.entries[0]
    files = [path.with_suffix(f".{number}") for number in range(len(args) + len(outputs_of(entry)))]
    for file, tensor, value in zip(files, args, inputs_of(entry), strict=False):
        tensor = tensor.contiguous().to(native_dtype(value))
        file.write_bytes(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
    return [built.files[0], entry.c_name, "1", *files]


_AOTI_PROGRAM = """#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <cstring>
#include <sstream>
int main(int count, char **arguments) {
  at::set_num_threads(1);
  torch::inductor::AOTIModelPackageLoader loader(arguments[1]);
  std::vector<at::Tensor> inputs;
  for (int at = 2; at < count; ++at) {
    std::istringstream text(arguments[at] + 1);
    std::vector<int64_t> shape;
    for (int64_t size; text >> size;) shape.push_back(size);
    inputs.push_back(at::ones(shape, arguments[at][0] == 'i' ? at::kLong : at::kFloat));
  }
  auto outputs = loader.run(inputs);
  fwrite(outputs[0].contiguous().data_ptr(), 1, 4, stdout);
  fflush(stdout);
  _exit(0);
}
"""
_TORCH = Path(torch.__file__).parent


def _aoti_program() -> Path:
    """Return the program in C++ that calls a package once; it is compiled the first time."""
    program = Path(tempfile.gettempdir()) / f"aoti_program_{torch.__version__}"
    if not program.exists():
        (source := program.with_name(f"{program.name}.cpp")).write_text(
            "#include <unistd.h>\n" + _AOTI_PROGRAM, encoding="utf-8"
        )
        include, lib = _TORCH / "include", _TORCH / "lib"
        options = ["-O1", "-std=c++20", f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}"]
        libraries = [f"-L{lib}", f"-Wl,-rpath,{lib}", "-ltorch", "-ltorch_cpu", "-lc10", "-Wl,--no-as-needed"]
        subprocess.run(["g++", *options, source, *libraries, "-o", program], check=True)
    return program


def _described(tensor: torch.Tensor) -> str:
    kind = "f" if tensor.is_floating_point() else "i"
    return f"{kind} {' '.join(map(str, tensor.shape))}"


def _libtorch_bytes() -> int:
    """Return the bytes of the libraries that code of AOTInductor needs."""
    found = [
        path
        for name in ("libtorch_cpu", "libtorch.", "libc10.", "libgomp")
        for path in (_TORCH / "lib").glob(f"{name}*")
    ]
    return sum(path.stat().st_size for path in found)


_HEADINGS = (
    *("model", "native, ms", "AOTInductor", "IREE", "eager", "size, KB", "AOTInductor", "start, ms", "AOTInductor"),
    *("speed to AOTInductor", "to IREE"),
)


def page(rows: Sequence[Row]) -> str:
    """Return the section of the page."""
    lines = [
        f"Written by `python -m benchmarks.native_peers` at {commit('HEAD')}: float32, one thread, batch 1 (32 of mlp",
        "and dlrm), the target `host`. Times are medians of the milliseconds of the CPU in a call, by turns. *Size* is",
        "without weights; AOTInductor's has libtorch. *Start* is from the start of a process to its first result.",
        "Where IREE has no figure, iree-compile failed.",
        "",
        f"| {' | '.join(_HEADINGS)} |",
        "|---|" + "---:|" * (len(_HEADINGS) - 1),
    ]
    for row in rows:
        times = [f"{row[engine] * 1e3:.2f}" if engine in row else "-" for engine in ("native", "aoti", "iree", "eager")]
        sizes = [f"{row[f'{engine}_bytes'] / 1e3:,.0f}" for engine in ("native", "aoti")]
        starts = [f"{row[f'{engine}_start'] * 1e3:,.0f}" for engine in ("native", "aoti")]
        speeds = [f"{row[engine] / row['native']:.2f}" if engine in row else "-" for engine in ("aoti", "iree")]
        lines.append(f"| {' | '.join([row['model'], *times, *sizes, *starts, *speeds])} |")

    def mean(over: str, under: str) -> float:
        return statistics.geometric_mean(row[over] / row[under] for row in rows if over in row)

    lines += [
        "",
        f"Geometric means: {mean('aoti', 'native'):.2f} times AOTInductor's speed, {mean('iree', 'native'):.2f} times",
        f"IREE's, {mean('eager', 'native'):.2f} times eager's; 1/{mean('aoti_bytes', 'native_bytes'):,.0f} of",
        f"AOTInductor's size, and 1/{mean('aoti_start', 'native_start'):.0f} of its start.",
        "",
    ]
    return "\n".join(lines)


def blas_page(rows: Sequence[Row]) -> str:
    """Return the section of the page on BLAS."""

    def mean(under: str) -> float:
        return statistics.geometric_mean(row["aoti"] / row[under] for row in rows)

    lines = [
        f"Written by `python -m benchmarks.native_peers --blas` at {commit('HEAD')}: models and target as above, one",
        "thread. Times are the least milliseconds of the CPU in a call, of seven turns. Models",
        "without the name of a library have no matmul that BLAS computes.",
        "",
        "| model | native, ms | native with BLAS | AOTInductor | eager | library | speed to AOTInductor | with BLAS |",
        "|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    for row in rows:
        times = [f"{row[engine] * 1e3:.2f}" for engine in ("native", "native_blas", "aoti", "eager")]
        speeds = [f"{row['aoti'] / row[engine]:.2f}" for engine in ("native", "native_blas")]
        lines.append(f"| {' | '.join([row['model'], *times, row.get('soname', ''), *speeds])} |")
    means = f"Geometric means: {mean('native'):.2f} times AOTInductor's speed, {mean('native_blas'):.2f} with BLAS."
    return "\n".join([*lines, "", means, ""])


def main() -> None:
    """Measure what the file lacks, or write the page."""
    parser = parser_of(__doc__, PAGE)
    parser.add_argument("--models", nargs="*", default=[*MODELS], choices=MODELS)
    parser.add_argument("--blas", type=Path, help="the shared library of a BLAS to compare with")
    arguments = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    done = {row["model"] for row in read_rows(arguments.json)}
    for name in arguments.models if not arguments.write else ():
        if name not in done:
            with tempfile.TemporaryDirectory() as folder:
                into = Path(folder)
                row = measure_blas(name, into, arguments.blas) if arguments.blas else measure(name, into)
                add_row(arguments.json, row)
            print(row, file=sys.stderr, flush=True)
    rows = read_rows(arguments.json)
    print(text := blas_page(rows) if arguments.blas else page(rows))
    if arguments.write:
        renew(PAGE, "blas" if arguments.blas else "peers", text)


if __name__ == "__main__":
    main()

"""Every reader of files, on damaged and edited ones: a sentence each, and nothing is run, or opened outside the folder.

A file may still be read: an edit may leave it valid. A slice runs by default; the sweeps of 1,000 are slow.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import json
import os
import signal
import struct
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_checkpoint

from fx_importer import Manifest, StageFailed, UsageError, link, load, lower, read_weights
from fx_importer.api.reproduce import facts_of, file_of, options_of
from fx_importer.caching.disk_store import Store
from fx_importer.cli.commands.matrix import read_inputs
from fx_importer.cli.commands.show import read as read_shown
from fx_importer.distributed.checkpoint import Checkpoint
from fx_importer.fx_graph.program_files import read_program
from fx_importer.llm.checkpoints.model_folder import read_source
from fx_importer.llm.settings import Settings
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.pipelines.pipeline_parser import foreign_steps
from fx_importer.weights.weight_files import stored_in
from fx_importer.weights.writing import save_weights
from tests.llm.tiny_models import save_tiny_model
from tests.mutations import damaged, edited, extreme

X = torch.ones(2, 3)
KEY = "0" * 64


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x, mode="fast"):
        return {"out": torch.relu(self.layer(x)), "rows": (x.shape[0], x + self.seen)}


class Refused(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten._standard_gamma(x)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return write_files(tmp_path_factory.mktemp("files"))


def write_files(folder: Path) -> Path:
    """Write a file for each reader to ``folder``."""
    rows = {"x": {0: torch.export.Dim("rows", min=2, max=9)}, "mode": None}
    model = Model().requires_grad_(False)
    torch.export.save(torch.export.export(model, (X,), {"mode": "fast"}, dynamic_shapes=rows), folder / "m.pt2")
    lowered = lower(model, X, output_type="linalg-on-tensors", weights="external")
    lowered.save(folder / "m.mlir")
    lowered.save(folder / "m.mlirbc", weights=folder / "w.safetensors")
    _write_gguf(folder / "w.gguf")
    if importlib.util.find_spec("iree"):
        save_weights(lowered.manifest, model.state_dict(), folder / "w.irpa", folder)
    index = {"weight_map": dict.fromkeys(stored_in(folder / "w.safetensors"), "w.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    torch.save([((X,), {"mode": "fast"})], folder / "inputs.pt")
    with pytest.raises(StageFailed) as caught:
        lower(Refused(), X, output_type="linalg-on-tensors", dump_dir=folder / "reports")
    assert caught.value.report is not None
    caught.value.report.rename(folder / "report")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that no process group is there
        save_checkpoint({"a": torch.ones(3, 4), "b": torch.arange(5)}, checkpoint_id=folder / "checkpoint")
    settings = Settings(1, 32, 8, ("weights",), (1,), 4, 5, 2)
    (folder / "llm.json").write_text(json.dumps(dataclasses.asdict(settings)))
    save_tiny_model(folder / "model", num_hidden_layers=1)
    Store(folder / "cache", 1 << 30).put(KEY, (folder / "m.manifest.json").read_bytes())
    return folder


def _write_gguf(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_token_list(["a", "b"])
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_tensor("a", np.ones((3, 4), np.float32))
    writer.add_tensor("b", np.zeros((2, 144), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()


def read_manifest(folder: Path) -> None:
    manifest = Manifest.from_json((folder / "m.manifest.json").read_text(errors="replace"))
    read_weights(manifest, base=folder)


def read_report(folder: Path) -> None:
    facts = facts_of(folder / "report")
    options_of(facts, folder / "report", trust=False)
    foreign_steps(facts["pipeline"])
    for name in facts["programs"].values():
        file_of(folder / "report", name)


def read_cache(folder: Path) -> None:
    entry = Store(folder / "cache", 1 << 30).get(KEY)
    assert entry is None or entry == (folder / "m.manifest.json").read_bytes()


def read_loaded(folder: Path) -> None:
    load(folder / "m.mlirbc", manifest=folder / "m.manifest.json").run(X)


def read_checkpoint(folder: Path) -> None:
    checkpoint = Checkpoint(folder / "checkpoint")
    for name, tensor in checkpoint.tensors.items():
        if len(tensor.size) <= 2:
            checkpoint[name][tuple(slice(0, min(size, 3)) for size in tensor.size)]


def edited_program(data: bytes, seed: int) -> bytes:
    """Return a ``.pt2`` file with one of its JSON entries edited."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    names = sorted(name for name in parts if name.endswith(".json"))
    name = names[seed % len(names)]
    parts[name] = edited(parts[name], seed)
    with zipfile.ZipFile(made := io.BytesIO(), "w", zipfile.ZIP_STORED) as archive:
        for each, content in parts.items():
            archive.writestr(each, content)
    return made.getvalue()


@dataclass(frozen=True)
class Reader:
    file: str
    read: Callable[[Path], object]
    mutate: Callable[[bytes, int], bytes] = damaged
    slice: int = 40
    sweep: int = 1000


READERS = {
    "manifest, damaged": Reader("m.manifest.json", read_manifest),
    "manifest, edited": Reader("m.manifest.json", read_manifest, edited, 100),
    "safetensors": Reader("w.safetensors", lambda folder: stored_in(folder / "w.safetensors"), slice=100),
    "gguf": Reader("w.gguf", lambda folder: stored_in(folder / "w.gguf"), slice=200),
    "archive": Reader("w.irpa", lambda folder: stored_in(folder / "w.irpa"), slice=100),
    "safetensors, extreme": Reader("w.safetensors", lambda folder: stored_in(folder / "w.safetensors"), extreme, 100),
    "gguf, extreme": Reader("w.gguf", lambda folder: stored_in(folder / "w.gguf"), extreme, 100),
    "archive, extreme": Reader("w.irpa", lambda folder: stored_in(folder / "w.irpa"), extreme, 100),
    "pt2, extreme": Reader("m.pt2", lambda folder: read_program(folder / "m.pt2"), extreme, 20),
    "checkpoint": Reader("checkpoint/.metadata", read_checkpoint, slice=100),
    "checkpoint, extreme": Reader("checkpoint/.metadata", read_checkpoint, extreme, 100),
    "checkpoint, parts": Reader("checkpoint/__0_0.distcp", read_checkpoint, slice=40),
    "settings": Reader("llm.json", Settings.read, edited, 100),
    "configuration": Reader("model/config.json", lambda folder: read_source(folder / "model"), edited, 10),
    "model weights": Reader("model/model.safetensors", lambda folder: read_source(folder / "model"), extreme, 10),
    "index": Reader("model.safetensors.index.json", stored_in, edited, 100),
    "pt2, damaged": Reader("m.pt2", lambda folder: read_program(folder / "m.pt2"), slice=20),
    "pt2, edited": Reader("m.pt2", lambda folder: read_program(folder / "m.pt2"), edited_program, 20),
    "report, damaged": Reader("report/report.json", read_report),
    "report, edited": Reader("report/report.json", read_report, edited, 100),
    "cache": Reader(f"cache/{KEY}.lowered", read_cache, slice=100),
    "inputs": Reader("inputs.pt", lambda folder: read_inputs(folder / "inputs.pt"), slice=20),
    "bytecode": Reader("m.mlirbc", lambda folder: read_untrusted_module(folder / "m.mlirbc"), slice=1),
    "text": Reader("m.mlir", lambda folder: read_untrusted_module(folder / "m.mlir"), slice=1),
    "shown": Reader("m.mlir", lambda folder: read_shown(folder / "m.mlir"), slice=1),
    "loaded": Reader("m.manifest.json", read_loaded, edited, 1, 20),
    "linked": Reader("m.manifest.json", lambda folder: link(folder / "m.mlirbc"), edited, 1, 20),
}


TABLE = {
    "manifest (`.manifest.json`)": ("manifest, damaged", "manifest, edited"),
    "weights of a manifest": ("loaded", "linked"),
    "`.safetensors`, an index of them, `.gguf`, `.irpa`": (
        *("safetensors", "safetensors, extreme", "gguf", "gguf, extreme", "archive", "archive, extreme", "index"),
    ),
    "a folder of torch.distributed.checkpoint": ("checkpoint", "checkpoint, extreme", "checkpoint, parts"),
    "`.mlir`, `.mlirbc`, and the manifest in them": ("bytecode", "text", "shown"),
    "`.pt2`": ("pt2, damaged", "pt2, edited", "pt2, extreme"),
    "report directory": ("report, damaged", "report, edited"),
    "inputs of `matrix --inputs`": ("inputs",),
    "a GGUF file": ("gguf", "gguf, extreme"),
    "programs and requests of `serve`": "tests/cli/test_playground_hostile.py",
    "requests to `llm serve`": "tests/llm/test_serving_hostile.py",
    "a folder of `llm import`": ("settings", "configuration", "model weights"),
    "cache entry": ("cache",),
}
"""The readers of each row of the table in ``docs/security.md``, or the file of their tests."""


def test_table_of_readers_is_complete():
    text = (Path(__file__).parents[1] / "docs" / "security.md").read_text()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert set(rows) == set(TABLE)
    named = [name for names in TABLE.values() if not isinstance(names, str) for name in names]
    assert set(named) == set(READERS)
    assert all((Path(__file__).parents[1] / file).is_file() for file in TABLE.values() if isinstance(file, str))


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The paths of files that Python opens, and commands that it starts, during the test."""
    found: list[str] = []
    watching = True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in ("open", "os.system", "subprocess.Popen", "import"):
            found.append(f"{event} {arguments[0]!r}")

    sys.addaudithook(hook)  # it stays for the rest of the process
    yield found
    watching = False


def check(reader: Reader, folder: Path, seeds: range, opened: list[str]) -> None:
    path = folder / reader.file
    if not path.exists():
        pytest.skip("the extra 'iree' is not installed")
    data = path.read_bytes()
    refused = 0
    reader.read(folder)
    try:
        for seed in seeds:
            path.write_bytes(reader.mutate(data, seed))
            try:
                reader.read(folder)
            except UsageError:
                refused += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
            if not path.exists():  # a damaged cache entry is removed
                path.touch()
    finally:
        path.write_bytes(data)
    print(f"{reader.file}: {refused} of {len(seeds)} refused")
    assert not Path("ran").exists()
    assert not [each for each in opened if "etc/passwd" in each or "touch ran" in each]


@pytest.mark.parametrize("name", READERS)
def test_slice(saved, tmp_path, monkeypatch, opened, name):
    monkeypatch.chdir(tmp_path)
    check(READERS[name], saved, range(READERS[name].slice), opened)


def _interrupt(*_):
    raise AssertionError("the reader waits")  # TimeoutError is an OSError, which readers catch


@pytest.mark.parametrize("name", [name for name in READERS if not name.startswith("manifest")])  # which is text
def test_pipes_and_devices_are_not_waited_for(saved, name):
    path = saved / READERS[name].file
    if not path.exists():
        pytest.skip("the extra 'iree' is not installed")
    data = path.read_bytes()
    was = signal.signal(signal.SIGALRM, _interrupt)
    try:
        for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir):
            path.unlink()
            make(path)
            signal.alarm(30)
            if name == "cache":
                assert Store(saved / "cache", 1 << 30).get(KEY) is None
            else:
                with pytest.raises(UsageError):
                    READERS[name].read(saved)
            signal.alarm(0)
            if path.is_dir():
                path.rmdir()
                path.touch()
            elif not os.path.lexists(path):  # a damaged cache entry is removed
                path.touch()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, was)
        if os.path.lexists(path):
            path.unlink()
        path.write_bytes(data)


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


_ENTRY = _string(b"a") + struct.pack("<IQIQ", 1, 8, 0, 0)
_PAIR = _string(b"general.name") + struct.pack("<I", 8) + _string(b"llama")


@pytest.mark.parametrize(
    ("tensors", "pairs", "table"),
    [
        (2, 0, _ENTRY + _ENTRY),
        (0, 2, _PAIR + _PAIR),
        (0, 1, _string(b"a") + struct.pack("<IIQ", 9, 9, 1) + bytes(12)),  # an array of arrays
    ],
)
def test_gguf_names_are_unique(tmp_path, tensors, pairs, table):
    path = tmp_path / "w.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + table + bytes(256))
    with pytest.raises(UsageError, match="a name is there twice|of the type 9"):
        stored_in(path)


def test_half_a_surrogate_names_no_file(saved):
    text = (saved / "m.manifest.json").read_text().replace("w.safetensors", r"\ud800.safetensors")
    with pytest.raises(UsageError, match="not a part of a file"):
        Manifest.from_json(text)


def test_archive_behind_another_is_refused(saved, tmp_path):
    path, data = tmp_path / "m.pt2", (saved / "m.pt2").read_bytes()
    path.write_bytes(data + data)
    with pytest.raises(UsageError, match="something is before its entries"):
        read_program(path)


@pytest.mark.parametrize("calls", [[((X,), {1: X})], [(X, {})], [("text", {})], [], {}, [((X,), {}, 3)]])
def test_inputs_that_are_no_calls(tmp_path, calls):
    torch.save(calls, tmp_path / "inputs.pt")
    with pytest.raises(UsageError, match="does not hold a list of input sets"):
        read_inputs(tmp_path / "inputs.pt")


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_sweep(saved, tmp_path, monkeypatch, opened, name):
    monkeypatch.chdir(tmp_path)
    check(READERS[name], saved, range(1000, 1000 + READERS[name].sweep), opened)

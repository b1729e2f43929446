"""The notebooks of `examples/` run from top to bottom, in Jupyter's kernel, and their cells show rich results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="of the extra 'test'")
nbclient = pytest.importorskip("nbclient", reason="of the extra 'test'")

EXAMPLES = Path(__file__).parents[1] / "examples"
NEEDS = {"llm_to_iree": ("iree.compiler", "transformers"), "vision_to_tosa": ("tosa_reference_model", "transformers")}
SHOWN = {
    "bring_your_accelerator": ("npu.scale_add", "simulator", "failed", "<iframe"),
    "llm_to_iree": ("<Manifest linalg-on-tensors: ", "prefill"),
    "vision_to_tosa": ("<Trace ", "<Pipeline tosa: ", "<Manifest tosa: ", "tosa.conv2d", "passed", "<iframe"),
}
"""What the results of each notebook contain."""


@pytest.mark.slow_rows("^llm_to_iree$")  # pages have the same jobs
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.ipynb")))
def test_notebook(name: str, monkeypatch: pytest.MonkeyPatch):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    monkeypatch.setenv("PYTHONPATH", f"{EXAMPLES.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    assert not [cell for cell in notebook.cells if cell.get("outputs")], "results are not in the repository"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    shown = "".join(_texts(notebook))
    assert [each for each in SHOWN[name] if each not in shown] == []


def _texts(notebook: Any) -> list[str]:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [text for output in outputs for text in (output.get("text", ""), *output.get("data", {}).values())]

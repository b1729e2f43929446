"""A tiny language model to serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from fx_importer.llm import import_model
from tests.llm.tiny_models import save_tiny_model, tokenizer


@pytest.fixture(scope="session")
def served_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of `llm import` with a cache in pages, and a tokenizer with a chat template."""
    folder = tmp_path_factory.mktemp("serving")
    save_tiny_model(folder / "model", num_hidden_layers=1)
    made = tokenizer()
    made.chat_template = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}[assistant]"
    made.save_pretrained(folder / "model")
    return import_model(folder / "model", folder / "tiny", batch=2, context=96, cache="paged", page_size=8)

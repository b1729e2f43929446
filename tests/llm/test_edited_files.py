"""Edited configurations and settings of language models: a sentence each."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fx_importer import UsageError
from fx_importer.llm.checkpoints.model_folder import read_source
from fx_importer.llm.settings import SETTINGS, Settings
from tests.llm.tiny_models import save_tiny_model
from tests.mutations import edited


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "model"
    save_tiny_model(path, num_hidden_layers=1)
    return path


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mlp_bias": "maybe"}, "mlp_bias"),
        ({"num_hidden_layers": 10**12}, "'num_hidden_layers' is 1,000,000,000,000, more than the weights have"),
        ({"hidden_size": 2**62}, "'hidden_size' is"),
        ({"num_attention_heads": 0}, r"config\.json|cannot load"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"rope_parameters": [1]}, r"config\.json|cannot load"),
        ({"auto_map": {"AutoConfig": "other--code.Config"}}, None),
    ],
)
def test_edited_configuration_is_named(folder, tmp_path, change, sentence):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    if sentence is None:
        assert read_source(tmp_path).load(None)
        return
    with pytest.raises(UsageError, match=sentence):
        read_source(tmp_path).load(None)


@pytest.mark.parametrize("text", ["", "[]", "null", '{"model_type": []}', "[" * 5000, '{"a": 1, "a": 2}', "\0"])
def test_other_configuration_is_refused(folder, tmp_path, text):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError):
        read_source(tmp_path)


def test_edited_settings_are_read_or_refused(tmp_path):
    settings = Settings(1, 32, 8, ("weights",), (1,), 4, 5, 2)
    good = json.dumps(dataclasses.asdict(settings)).encode()
    refused = 0
    for seed in range(300):
        (tmp_path / SETTINGS).write_bytes(edited(good, seed))
        try:
            Settings.read(tmp_path)
        except UsageError:
            refused += 1
    assert refused > 100
    (tmp_path / SETTINGS).write_bytes(good)
    assert Settings.read(tmp_path) == settings

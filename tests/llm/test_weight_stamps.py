"""Weights that changed after the import of a model."""

import json

import pytest
import torch
from safetensors.torch import save_file

from fx_importer import UsageError
from fx_importer.llm import import_model, load
from fx_importer.llm.checkpoints.weight_stamps import check_stamps, stamps_of
from fx_importer.llm.settings import Settings
from tests.llm.tiny_models import save_tiny_model


def test_changed_files_are_named(tmp_path):
    """The same bytes with another time are accepted."""
    source, out = tmp_path / "model", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    file = source / "model.safetensors"
    save_file({"a": torch.ones(4)}, file)
    original = file.read_bytes()
    weights = [str(source)]
    stamps = stamps_of(out, weights)
    file.write_bytes(original)
    check_stamps(out, weights, stamps)
    file.write_bytes(original[:-1] + b"!")
    with pytest.raises(UsageError, match=r"model\.safetensors' changed, with the same size and another hash: import"):
        check_stamps(out, weights, stamps)
    save_file({"a": torch.ones(4), "b": torch.ones(1)}, file)
    with pytest.raises(UsageError, match=r"changed, from [\d,]+ to [\d,]+ bytes"):
        check_stamps(out, weights, stamps)
    with pytest.raises(UsageError, match="were not there at the import"):
        check_stamps(out, weights, {})
    with pytest.raises(UsageError, match=r"does not say which weights it was imported from, as before version 0\.4"):
        check_stamps(out, weights, None)
    file.unlink()
    with pytest.raises(UsageError, match="are not there any more"):
        check_stamps(out, weights, stamps)


@pytest.mark.slow
def test_an_import_notes_its_files(tmp_path):
    """Those in its folder by a relative path, so that the folder may be moved."""
    save_tiny_model(tmp_path / "model", num_hidden_layers=1)
    source = tmp_path / "model" / "model.safetensors"
    out = import_model(tmp_path / "model", tmp_path / "out", context=16)
    settings = Settings.read(out)
    assert settings.files is not None
    assert list(settings.files) == [str(source)]
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "weights.safetensors").write_bytes(source.read_bytes())
    assert list(stamps_of(tmp_path / "moved", ["weights.safetensors"])) == ["weights.safetensors"]
    load(out)
    data = bytearray(source.read_bytes())
    data[-1] ^= 1
    source.write_bytes(data)
    with pytest.raises(UsageError, match="with the same size and another hash"):
        load(out)
    (out / "llm.json").write_text(json.dumps(json.loads((out / "llm.json").read_text()) | {"files": {"a": 1}}))
    with pytest.raises(UsageError, match="is not a folder that `fx-importer llm import` wrote"):
        load(out)

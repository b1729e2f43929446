"""The cache in eager PyTorch: logits are those of the model on the whole sequence, however it is passed."""

import re

import pytest
import torch

from fx_importer import lower
from fx_importer.llm.decoder import Decoder
from tests.llm.tiny_models import save_tiny_model

WINDOW = 12
SEQUENCES = torch.randint(0, 256, (2, 29), generator=torch.Generator().manual_seed(0))
PADDING = torch.tensor([6, 0])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a model with a sliding layer and a full one."""
    return save_tiny_model(tmp_path_factory.mktemp("model"), "gemma2", sliding_window=WINDOW)


@pytest.mark.parametrize("chunk", [1, 3, 12, 16, 29])
def test_chunks_see_the_rows_that_they_overwrite(model, chunk):
    """The last one is filled up behind the text, in the ring too."""
    decoder, found = Decoder(model, 2, 36).eval(), torch.empty(0)
    assert [each.get_buffer("key").shape[2] for each in decoder.cache] == [WINDOW, 36]
    with torch.no_grad():
        model.set_attn_implementation("eager")
        whole = [each[pad:] for each, pad in zip(SEQUENCES, PADDING, strict=True)]
        expected = torch.stack([model(each[None]).logits[0, -1] for each in whole])
        model.set_attn_implementation("fx_importer")
        for start in range(0, 29, chunk):
            part = SEQUENCES[:, start : start + chunk]
            last = torch.tensor(part.shape[1] - 1)
            filled = torch.nn.functional.pad(part, (0, chunk - part.shape[1]), value=5)
            found = decoder(filled, torch.tensor(start), PADDING, last)
    torch.testing.assert_close(found, expected)


def test_a_step_writes_one_row_of_each_ring(model):
    """A slice of keys and one of values are all that makes a tensor of the ring's shape."""
    example = (torch.ones(2, 1, dtype=torch.int64), torch.tensor(0), PADDING)
    with torch.no_grad():
        program = torch.export.export(Decoder(model, 2, 36).eval(), example)
    for output_type, write in ("linalg-on-tensors", "tensor.insert_slice"), ("stablehlo", "dynamic_update_slice"):
        module = str(lower(program, output_type=output_type, mutation="functional", weights="external").module)
        makes = re.compile(rf" = .*(?:->|into) tensor<2x2x{WINDOW}x8xf32>(?: loc.*)?$", re.MULTILINE)
        made = makes.findall(module)
        assert len(made) == 2
        assert all(write in each for each in made)

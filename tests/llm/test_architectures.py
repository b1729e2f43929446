"""Language models of transformers' own code: tokens are those of ``model.generate``."""

import pytest
import torch

from fx_importer.llm import import_model, load
from tests.llm.tiny_models import CONFIGS, END, save_tiny_model

QUICK = ("llama", "gemma2", "gpt2")
KINDS = [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in CONFIGS]
STEPS = 24


def expected(model, prompts: list[list[int]], steps: int) -> list[list[int]]:
    """Return the tokens that ``generate`` adds, for each prompt alone, without an end."""
    found = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        with torch.no_grad():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=steps, do_sample=False, eos_token_id=None,
                pad_token_id=END,
            )  # fmt: skip
        found.append(out[0, len(prompt) :].tolist())
    return found


@pytest.mark.slow_rows("^gpt2$", "^gemma2$")
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_generate(kind, tmp_path):
    """Prompts of two lengths in one batch, past the sliding window of those that have one."""
    prompts = [[7, 99, 31, 250, 4], [12, 5, 77, 140, 201, 33, 90, 2, 61, 18, 40]]
    seeds = (expected(save_tiny_model(tmp_path / "model", kind, seed), prompts, STEPS) for seed in range(8))
    reference = next(each for each in seeds if all(len(set(tokens)) >= 8 for tokens in each))  # others say little
    import_model(tmp_path / "model", tmp_path / "out", batch=2, context=48)
    imported = load(tmp_path / "out")
    tokens = list(imported.tokens(prompts, STEPS))
    assert [list(each) for each in zip(*tokens, strict=True)] == reference

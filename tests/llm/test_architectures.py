"""Language models of transformers' own code: tokens are those of ``model.generate``."""

from pathlib import Path

import pytest
import torch
from transformers import LogitsProcessor

from fx_importer.llm import import_model, load
from fx_importer.process.optional_packages import is_installed
from tests.llm.tiny_models import CONFIGS, END, SINGLE, STATES, save_tiny_model

STEPS = 24
NEAR_TIE = 1e-4
"""Logits of engines differ by less, of sizes near 1."""
PROMPTS = [[7, 99, 31, 250, 4], [12, 5, 77, 140, 201, 33, 90, 2, 61, 18, 40], [1, 2, 3]]


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


class _Forced(LogitsProcessor):
    """Has the first tokens be those of a prompt."""

    def __init__(self, prompt: list[int]):
        self.prompt = prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if (place := input_ids.shape[1]) >= len(self.prompt):
            return scores
        return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([self.prompt[place]]), 0.0)


def is_decided(model, prompt: list[int], tokens: list[int], by_steps: bool) -> bool:
    """Return whether ``tokens`` do not depend on rounding, nor ``by_steps`` on how calls divide the prompt: logits of
    zamba2 do, by 0.08.
    """
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        chosen = torch.nn.functional.one_hot(torch.tensor(tokens), logits.shape[-1]).bool()
        if (logits[chosen] - logits.masked_fill(chosen, -torch.inf).amax(-1)).min() < NEAR_TIE:
            return False
        if not by_steps:
            return True
        ids = torch.tensor([prompt[:1]])
        options = {"do_sample": False, "eos_token_id": None, "pad_token_id": END, "logits_processor": [_Forced(prompt)]}
        steps = len(prompt) - 1 + len(tokens)
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=steps, **options)
    return out[0].tolist() == prompt + tokens


def reference(folder: Path, kind: str, prompts: list[list[int]], **changes: int) -> list[list[int]]:
    """Write a tiny model to ``folder``, and return its tokens: of a seed with which they vary, others say little, and
    are decided.

    ``changes`` are to its configuration.
    """
    for seed in range(16):
        model = save_tiny_model(folder, kind, seed, **changes)
        rows = expected(model, prompts, STEPS)
        if all(len(set(tokens)) >= 8 for tokens in rows) and all(
            is_decided(model, prompt, tokens, kind in STATES) for prompt, tokens in zip(prompts, rows, strict=True)
        ):
            return rows
    raise AssertionError(f"no seed of {kind} has tokens that vary and are decided")


def greedy(folder: Path, engine: str, prompts: list[list[int]]) -> list[list[int]]:
    """Return the tokens of the model that was imported to ``folder``."""
    return [list(each) for each in zip(*load(folder, engine=engine).tokens(prompts, STEPS), strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
def test_greedy_tokens_are_those_of_generate(kind, tmp_path):
    """Prompts of two lengths in one batch, past the sliding window of those that have one.

    Llama, Mistral, Mamba and T5 have tests of their features that run always.
    """
    prompts = PROMPTS[: 1 if kind in SINGLE else 2]
    tokens = reference(tmp_path / "model", kind, prompts)
    import_model(tmp_path / "model", tmp_path / "out", batch=len(prompts), context=48)
    assert greedy(tmp_path / "out", "jit", prompts) == tokens


ENGINES = {"iree": "iree.compiler", "xla": "jax"}


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "engine, output_type", [("iree", "linalg-on-tensors"), ("iree", "stablehlo"), ("xla", "stablehlo")]
)
@pytest.mark.parametrize("kind", CONFIGS)
def test_greedy_tokens_on_other_engines(kind, engine, output_type, batch, tmp_path):
    """Alone and in a batch of three lengths; StableHLO takes prompts in chunks longer than the window."""
    if not is_installed(ENGINES[engine]):
        pytest.skip(f"the extra '{engine}' is not installed")
    if batch > 1 and kind in SINGLE:
        pytest.skip("the model's code takes one sequence")
    tokens = reference(tmp_path / "model", kind, PROMPTS[:batch])
    import_model(tmp_path / "model", tmp_path / "out", batch=batch, context=48, output_type=output_type)
    assert greedy(tmp_path / "out", engine, PROMPTS[:batch]) == tokens

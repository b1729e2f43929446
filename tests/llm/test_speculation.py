"""Drafts are verified in one call, and what is not accepted is taken back."""

from itertools import chain

import pytest

from fx_importer import UsageError
from fx_importer.llm import import_model, load, speculate
from tests.llm.test_architectures import PROMPTS, reference
from tests.llm.tiny_models import save_tiny_model

pytestmark = pytest.mark.slow  # a model for each kind of cache is imported: 20 CPU seconds

CONTEXT, DRAFT = 40, 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return the folder of a model, and its 24 tokens after a prompt."""
    folder = tmp_path_factory.mktemp("speculation")
    return folder, reference(folder / "model", "llama", PROMPTS[:1], num_hidden_layers=1)[0]


@pytest.fixture(scope="module", params=["static", "paged"])
def model(tiny, request):
    out = tiny[0] / request.param
    return load(import_model(tiny[0] / "model", out, batch=2, context=CONTEXT, cache=request.param, draft=DRAFT))


@pytest.fixture(scope="module")
def other(tiny):
    """Return another model, which proposes what is mostly wrong."""
    save_tiny_model(tiny[0] / "other", seed=11, num_hidden_layers=1)
    return load(import_model(tiny[0] / "other", tiny[0] / "other-out", context=CONTEXT))


def test_logits_of_all_tokens(model, tiny):
    """Are those of single steps, also where the draft does not fit the context any more."""
    sequence = model.sequence()
    logits = sequence.append(PROMPTS[0])
    for start in range(0, 24, 3):
        sequence.verify([1, 2, 3, 4])  # taken back
        sequence.cut(len(PROMPTS[0]) + start)
        found = sequence.verify(tiny[1][start : start + 3])
        assert [int(each.argmax()) for each in (logits[0], *found[:-1])] == tiny[1][start : start + 3]
        logits = found[-1:]
    sequence.append([1] * (CONTEXT - 2 - len(sequence.tokens)))
    assert sequence.verify([1, 2]).shape == (2, 257)
    assert len(sequence.tokens) == CONTEXT
    sequence.close()


def test_tokens_are_those_of_the_model(model, other, tiny):
    for draft, calls in ((other, None), (model if model.settings.page_size else None, 7)):
        if draft is None:  # a static cache has one sequence
            continue
        parts = list(speculate(model, draft, PROMPTS[0], 24))
        assert list(chain(*parts)) == tiny[1]
        assert calls is None or len(parts) == calls  # 1, and six of four
    whole = list(chain(*speculate(model, other, PROMPTS[0], 1000)))
    assert len(whole) == CONTEXT + 1 - len(PROMPTS[0])


def test_wrong_drafts_are_said(tiny, model, other, tmp_path):
    with pytest.raises(UsageError, match="has no function 'verify'"):
        list(speculate(other, model, [1], 4))
    with pytest.raises(UsageError, match="5 tokens to verify: accepted are 1 to 4"):
        model.sequence().verify([1] * 5)
    with pytest.raises(UsageError, match="a draft of 16 tokens: accepted are 1 to 15"):
        import_model(tiny[0] / "model", tmp_path, context=CONTEXT, draft=16)
    save_tiny_model(tmp_path / "rings", "mistral", num_hidden_layers=1)
    with pytest.raises(UsageError, match="rings of sliding windows cannot take back tokens"):
        import_model(tmp_path / "rings", tmp_path / "out", context=CONTEXT, draft=2)

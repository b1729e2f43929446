"""A cache in pages: what is written, and sequences that share steps as they come and go."""

import re

import pytest
import torch
from transformers import AutoModelForCausalLM

from fx_importer import UsageError, lower
from fx_importer.llm import Sampling, Scheduler, import_model, load
from fx_importer.llm.decoder import PagedDecoder
from fx_importer.process.optional_packages import is_installed
from tests.llm.test_architectures import ENGINES, PROMPTS, reference
from tests.llm.tiny_models import save_tiny_model

CONTEXT, PAGE = 40, 4


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return the folder of a model with sliding windows, and its tokens of 24 steps after `PROMPTS`."""
    folder = tmp_path_factory.mktemp("paged") / "model"
    return folder, reference(folder, "mistral", PROMPTS, num_hidden_layers=1)


@pytest.fixture(scope="module")
def loaded(tiny):
    """Return the model with two slots, and pages for one sequence of 24 positions and a short one."""
    out = tiny[0].parent / "out"
    return load(import_model(tiny[0], out, batch=2, context=CONTEXT, cache="paged", page_size=PAGE, pages=20))


def run(scheduler, requests, steps=1000):
    """Run until all requests have ended."""
    for _ in range(steps):
        if all(each.done for each in requests):
            return
        scheduler.step()
    raise AssertionError("the scheduler does not come to an end")


def test_tokens_do_not_depend_on_the_company(tiny, loaded, monkeypatch):
    """One joins while another decodes, the third waits for a slot; prompts are passed in parts."""
    scheduler, free = Scheduler(loaded), len(loaded.free_pages)
    monkeypatch.setattr(loaded, "most", 4)
    first = scheduler.add(PROMPTS[0], max_new_tokens=24)
    for _ in range(5):
        scheduler.step()
    others = [scheduler.add(each, max_new_tokens=24) for each in PROMPTS[1:]]
    scheduler.step()
    assert [each.in_prefill for each in others] == [True, True]
    assert others[1] in scheduler.waiting
    run(scheduler, [first, *others])
    assert [each.tokens for each in (first, *others)] == tiny[1]
    assert len(loaded.free_pages) == free
    assert scheduler.is_idle


def test_cancelled_requests_free_their_pages(tiny, loaded):
    scheduler, free = Scheduler(loaded), len(loaded.free_pages)
    first, second = (scheduler.add(each, max_new_tokens=24) for each in PROMPTS[:2])
    scheduler.step()
    assert len(loaded.free_pages) < free
    scheduler.cancel(first)
    scheduler.cancel(first)
    run(scheduler, [second])
    assert second.tokens == tiny[1][1]
    assert len(loaded.free_pages) == free
    iterator = loaded.tokens(PROMPTS[:1], 4)
    next(iterator)
    iterator.close()
    assert len(loaded.free_pages) == free


def test_requests_wait_for_pages(tiny, loaded):
    """Two that need more pages together than there are run one after the other."""
    scheduler = Scheduler(loaded)
    requests = [scheduler.add(each, max_new_tokens=40) for each in (PROMPTS[1], PROMPTS[1][::-1], PROMPTS[0])]
    scheduler.step()
    assert list(scheduler.waiting) == requests[2:] or len(scheduler.waiting) == 2
    run(scheduler, requests)
    assert requests[0].tokens[:24] == tiny[1][1]
    assert len(requests[0].tokens) == CONTEXT + 1 - len(PROMPTS[1])


def test_more_prompts_than_slots(tiny, loaded):
    assert [list(each) for each in zip(*loaded.tokens(PROMPTS, 24), strict=True)] == tiny[1]
    texts = ["Hello", "A longer prompt", "Third"]
    alone = [loaded.generate(each, max_new_tokens=9)[0].text for each in texts]
    assert [each.text for each in loaded.generate(texts, max_new_tokens=9)] == alone
    stop = alone[1][3:5]
    assert loaded.generate(texts[1], max_new_tokens=9, stop=[stop])[0].finished == "stop"


def test_draws_of_a_request_are_its_own(loaded):
    drawn = []
    for company in ([], [PROMPTS[1]]):
        scheduler = Scheduler(loaded)
        others = [scheduler.add(each, max_new_tokens=20, sampling=Sampling(1.0), seed=5) for each in company]
        request = scheduler.add(PROMPTS[0], max_new_tokens=8, sampling=Sampling(1.0), seed=3)
        run(scheduler, [request, *others])
        drawn.append(request.tokens)
    assert drawn[0] == drawn[1]


def test_scores_are_those_of_the_model(tiny, loaded, monkeypatch):
    """In parts."""
    monkeypatch.setattr(loaded, "most", 6)
    (score,) = loaded.score("Once upon a time")
    ids = torch.tensor([score.tokens])
    with torch.no_grad():
        loss = AutoModelForCausalLM.from_pretrained(tiny[0])(ids, labels=ids).loss
    assert score.perplexity == pytest.approx(float(loss.exp()), rel=1e-4)
    with pytest.raises(UsageError, match="texts of 41 tokens: accepted is 2 to 40"):
        loaded.score("a" * 41)


def test_the_pool_stays_where_it_is(loaded):
    before = {name: each.data_ptr() for name, each in loaded.caller.state.items()}
    loaded.generate("Hello", max_new_tokens=4)
    assert {name: each.data_ptr() for name, each in loaded.caller.state.items()} == before


@pytest.mark.parametrize(
    "prompt, new, message",
    [
        ([], 4, "a prompt of 0 tokens: accepted is 1 to 40"),
        ([1] * 41, 4, "a prompt of 41 tokens"),
        ([1], 0, "0 new tokens"),
    ],
)
def test_wrong_requests_are_said(loaded, prompt, new, message):
    with pytest.raises(UsageError, match=message):
        Scheduler(loaded).add(prompt, max_new_tokens=new)


def test_wrong_sizes_are_said(tiny, tmp_path):
    wrong = [
        ({"cache": "heap"}, "the cache 'heap': accepted are static, paged"),
        ({"page_size": 4}, "a static cache has no pages"),
        ({"cache": "paged", "page_size": 0}, "a page of 0 rows"),
        ({"cache": "paged", "pages": 1}, "a pool of 1 pages: accepted is 2 or more"),
    ]
    for arguments, message in wrong:
        with pytest.raises(UsageError, match=message):
            import_model(tiny[0], tmp_path / "out", context=32, **arguments)
    assert not (tmp_path / "out").exists()


def test_a_step_writes_new_rows_only(tmp_path):
    """A slice for each sequence, of keys and of values, are all that makes a tensor of the pool's shape."""
    decoder = PagedDecoder(save_tiny_model(tmp_path), 64, 20, 16).eval()
    example = (torch.ones(2, 1, dtype=torch.int64), torch.ones(2, 3, dtype=torch.int64), torch.zeros(2).long())
    with torch.no_grad():
        pages = {1: torch.export.Dim("pages", min=1, max=64)}
        program = torch.export.export(decoder, example, dynamic_shapes=(None, pages, None))
    for output_type, write in ("linalg-on-tensors", "tensor.insert_slice"), ("stablehlo", "stablehlo.scatter"):
        module = str(lower(program, output_type=output_type, mutation="functional", weights="external").module)
        made = re.findall(r"\n *(%\S+ = .*(?:->|into) tensor<320x2x8xf32>)(?: loc.*)?", module)
        made += ["stablehlo.scatter"] * len(
            re.findall(r"\n    }\) : \(tensor<320x2x8xf32>.*-> tensor<320x2x8xf32>", module)
        )
        assert len(made) == (8 if output_type == "linalg-on-tensors" else 4)
        assert all(write in each for each in made)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "gpt2", "mixtral"])
@pytest.mark.parametrize(
    "engine, output_type", [("jit", "linalg-on-tensors"), ("iree", "linalg-on-tensors"), ("xla", "stablehlo")]
)
def test_greedy_tokens_on_engines(kind, engine, output_type, tmp_path):
    if not is_installed(ENGINES.get(engine, "torch")):
        pytest.skip(f"the extra '{engine}' is not installed")
    tokens = reference(tmp_path / "model", kind, PROMPTS)
    out = import_model(
        tmp_path / "model", tmp_path / "out", batch=2, context=CONTEXT, cache="paged", output_type=output_type
    )
    found = load(out, engine=engine).tokens(PROMPTS, 24)
    assert [list(each) for each in zip(*found, strict=True)] == tokens

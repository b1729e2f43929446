"""Encoder-decoders: tokens are those of ``generate``, and the source is read once."""

import dataclasses
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from fx_importer import UsageError, llm
from fx_importer.cli.commands.llm import run_language_model, score_texts
from fx_importer.llm import Chat, SourceModel, import_model, load
from fx_importer.llm.agreement import check_agreement
from fx_importer.llm.architectures.sources import source_of
from fx_importer.llm.source_decoder import SourceDecoder, SourceEncoder
from fx_importer.process.optional_packages import is_installed
from tests.llm.source_models import CONFIGS, save_source_model, source_model
from tests.llm.test_architectures import ENGINES
from tests.llm.tiny_models import save_tiny_model

QUICK = ("t5", "bart", "whisper")
FEATURES = {"whisper": (8, 24), "vision-encoder-decoder": (3, 8, 8)}
KINDS = [
    kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow)
    for kind in CONFIGS
    if kind != "switch_transformers"
]
SOURCES = [[7, 99, 31, 250, 4], [12, 5, 77, 140, 201, 33, 90, 2, 61]]
STEPS = 16


def _sources(kind) -> Any:
    generator = torch.Generator().manual_seed(0)
    return list(torch.randn(2, *FEATURES[kind], generator=generator)) if kind in FEATURES else SOURCES


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_each_source_alone(kind):
    """In a batch of sources of two lengths, after other sources whose keys and values are in the buffers."""
    model = source_model(kind)
    check_agreement(model, 2, source_of(model, None if kind in FEATURES else 12))
    sources, tokens = _sources(kind), torch.arange(3, 17).reshape(2, 7) * 5
    with torch.no_grad():
        if kind in FEATURES:
            expected = model(torch.stack(sources), decoder_input_ids=tokens).logits
            inputs = (torch.stack(sources),)
        else:
            alone = zip(sources, tokens, strict=True)
            rows = [model(input_ids=torch.tensor([one]), decoder_input_ids=row[None]).logits for one, row in alone]
            expected, lengths = torch.cat(rows), [len(one) for one in sources]
            inputs = (torch.tensor([[*one, *[1] * (9 - len(one))] for one in sources]), torch.tensor(lengths))
        decoder = SourceDecoder(model, 2, 16, source=source_of(model, None if kind in FEATURES else 12)).eval()
        for buffer in decoder.cache.buffers():
            buffer.fill_(3)
        SourceEncoder(decoder).eval()(*inputs)
        prompt = torch.nn.functional.pad(tokens[:, :4], (0, 1))
        steps = [decoder(prompt, torch.tensor(0), torch.tensor(3))]
        steps += [decoder(tokens[:, at : at + 1], torch.tensor(at)) for at in range(4, 7)]
    torch.testing.assert_close(torch.stack(steps, 1), expected[:, 3:], rtol=1e-4, atol=1e-4)


def _expected(model, sources):
    """Return the tokens that ``generate`` adds for each source alone."""
    found = []
    for source in sources:
        row = source[None] if isinstance(source, torch.Tensor) else torch.tensor([source])
        with torch.no_grad():
            out = model.generate(row, max_new_tokens=STEPS, do_sample=False, eos_token_id=None)
        found.append(out[0, 1:].tolist() if len(out[0]) > STEPS else out[0].tolist())
    return found


def _reference(folder, kind):
    """Write a tiny model to ``folder``, and return its tokens: of a seed with which they vary, others say little."""
    seeds = (_expected(save_source_model(folder, kind, seed), _sources(kind)) for seed in range(16))
    return next(each for each in seeds if all(len(set(tokens)) >= 5 for tokens in each))


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine, output_type", [("jit", "linalg-on-tensors"), ("iree", "linalg-on-tensors"), ("xla", "stablehlo")]
)
@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "switch_transformers"])
def test_greedy_tokens_of_other_models_and_engines(kind, engine, output_type, tmp_path):
    """Two sources in a batch of three."""
    if not is_installed(ENGINES.get(engine, "torch")):
        pytest.skip(f"the extra '{engine}' is not installed")
    tokens = _reference(tmp_path / "model", kind)
    options: dict[str, Any] = {} if kind in FEATURES else {"source_context": 12}
    out = import_model(tmp_path / "model", tmp_path / "out", batch=3, context=24, output_type=output_type, **options)
    model: Any = load(out, engine=engine)
    found = zip(*model.tokens(_sources(kind), STEPS), strict=True)
    assert [list(row) for row in found] == tokens


class _Imported:
    """A T5 in a folder, imported for two sources of up to 12 tokens, and loaded."""

    def __init__(self, folder):
        self.model_folder, self.folder = folder / "model", folder / "out"
        self.tokens = _reference(self.model_folder, "t5")
        import_model(self.model_folder, self.folder, batch=2, context=24, source_context=12)
        self.model: Any = load(self.folder)
        self.form = self.model.form


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    return _Imported(tmp_path_factory.mktemp("sources"))


@pytest.fixture
def model(imported):
    settings = imported.model.settings
    yield imported.model
    imported.model.settings = settings


def test_greedy_tokens_are_those_of_generate(imported, model):
    """Two sources, twice: the second time in the buffers of the first."""
    assert isinstance(model, SourceModel)
    assert [list(row) for row in zip(*model.tokens(SOURCES[::-1], STEPS), strict=True)] == imported.tokens[::-1]
    assert [list(row) for row in zip(*model.tokens(SOURCES, STEPS), strict=True)] == imported.tokens
    names = {name.rpartition(".")[2] for name in model.caller.state}
    assert names - {"source_lengths"} == {"key", "value", "cross_key", "cross_value"}


def test_scores_and_commands(imported, model, capsys, monkeypatch):
    """A text's probabilities are those of the model after the source."""
    reference = AutoModelForSeq2SeqLM.from_pretrained(imported.model_folder)
    ((score,), ids) = model.score("So", sources="Once"), model.tokenizer("Once", return_tensors="pt")["input_ids"]
    row = torch.tensor([score.tokens])
    with torch.no_grad():
        expected = reference(input_ids=ids, decoder_input_ids=row).logits[0].log_softmax(-1)
    torch.testing.assert_close(
        torch.tensor(score.log_probabilities), expected[:-1].gather(1, row[0, 1:, None])[:, 0], rtol=1e-4, atol=1e-4
    )
    monkeypatch.setattr(llm, "load", lambda *_, **__: model)
    run_language_model(imported.folder, ["Once"], [], "S", "jit", None, max_new_tokens=3)
    (completion,) = model.generate("Once", start="S", max_new_tokens=3)
    assert capsys.readouterr().out == completion.text + "\n"
    score_texts(imported.folder, ["So"], "jit", None, ["Once"])
    assert capsys.readouterr().out == f"perplexity {score.perplexity:.4f}, {len(score.tokens)} tokens\n"


def test_forced_and_suppressed_tokens(model):
    suppressed = tuple(range(200))
    form = dataclasses.replace(model.form, forced=9, forced_last=8, suppressed=suppressed, suppressed_first=(210,))
    model.settings = dataclasses.replace(model.settings, source=form)
    first, *others, last = [token for (token,) in model.tokens([[1, 2]], 5)]
    assert (first, last) == (9, 8)
    assert not {*others} & {*suppressed}


@pytest.mark.parametrize(
    "sources, message",
    [
        ([], "0 sources: the module was imported for 1 to 2"),
        ([[1]] * 3, "3 sources: the module was imported for 1 to 2"),
        ([[]], "sources of 0 tokens: accepted is 1 to 12"),
        ([[1] * 13], "sources of 13 tokens: accepted is 1 to 12"),
        ([torch.zeros(3)], "features as a source: the encoder reads tokens"),
    ],
    ids=["none", "many", "empty", "long", "features"],
)
def test_sources_that_do_not_fit_are_said(model, sources, message):
    with pytest.raises(UsageError, match=message):
        next(iter(model.tokens(sources, 2)))


def test_uses_that_do_not_fit_are_said(imported, model):
    with pytest.raises(UsageError, match="1 texts and 0 sources"):
        model.score("So")
    with pytest.raises(UsageError, match="answers a source, and continues no conversation"):
        Chat(model).say("Hi")
    with pytest.raises(UsageError, match="pass --prompt, or --features"):
        run_language_model(imported.folder, [], [], None, "jit", None)
    model.settings = dataclasses.replace(model.settings, source=dataclasses.replace(model.form, start=()))
    with pytest.raises(UsageError, match="no tokens to start with: pass start="):
        model.generate("Once")


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"cache": "paged"},
            "T5ForConditionalGeneration is an encoder-decoder, for which the cache has to be static",
        ),
        ({"draft": 3}, "is an encoder-decoder, whose tokens are not drafted"),
        ({"adapter_rank": 2}, "is an encoder-decoder, which takes no adapters as arguments"),
        ({"source_context": 0}, "a source of 0 positions: accepted is at least 1"),
    ],
    ids=["paged", "draft", "adapter", "short"],
)
def test_imports_that_do_not_fit_are_said(imported, tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        import_model(imported.model_folder, tmp_path / "out", context=16, **options)


def test_decoders_alone_have_no_source(tmp_path):
    save_tiny_model(tmp_path / "model", num_hidden_layers=1)
    with pytest.raises(UsageError, match="source_context=8 for LlamaForCausalLM, which has no encoder"):
        import_model(tmp_path / "model", tmp_path / "out", context=16, source_context=8)


@pytest.mark.parametrize(("kind", "dtype"), [("switch_transformers", "float32"), ("bart", "float16")])
def test_code_that_asks_for_values_is_said(kind, dtype):
    model = source_model(kind).to(getattr(torch, dtype))
    with pytest.raises(
        UsageError, match=rf"ForConditionalGeneration cannot run .*\.py:\d+\): in {dtype}, its code asks"
    ):
        check_agreement(model, 1, source_of(model, 8))

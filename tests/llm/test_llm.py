"""Import of a language model, and what it generates."""

import json
import re
from typing import Any

import pytest
import torch

from fx_importer import UsageError
from fx_importer.cli.commands.llm import run_language_model
from fx_importer.errors import printable
from fx_importer.llm import import_model, load, loading, memory
from fx_importer.llm.sampling import Sampling
from tests.llm.test_architectures import expected
from tests.llm.tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return the folder of a model, the model, and the folder that was imported."""
    folder = tmp_path_factory.mktemp("llm")
    model = save_tiny_model(folder / "model", num_hidden_layers=1)
    return folder / "model", model, import_model(folder / "model", folder / "out", batch=2, context=32)


@pytest.fixture(scope="module")
def loaded(tiny):
    return load(tiny[2])


def test_the_folder_has_no_second_copy_of_the_weights(tiny):
    source, _, out = tiny
    files = {each.name for each in out.iterdir()}
    assert {"model.mlirbc", "model.manifest.json", "llm.json", "tokenizer.json", "generation_config.json"} <= files
    assert not any(each.endswith(".safetensors") for each in files)
    assert json.loads((out / "llm.json").read_text())["weights"] == [str(source)]
    assert (out / "model.mlirbc").stat().st_size < (source / "model.safetensors").stat().st_size


def test_texts_stream_and_end(tiny, loaded):
    parts: dict[int, str] = {0: "", 1: ""}

    def collect(number: int, text: str) -> None:
        parts[number] += text

    prompts = ["Hello", "A longer prompt"]
    whole = loaded.generate(prompts, max_new_tokens=12, on_text=collect)
    assert [each.text for each in whole] == list(parts.values())
    assert [list(each.tokens) for each in whole] == expected(tiny[1], loaded.tokenizer(prompts)["input_ids"], 12)
    assert whole[0].finished == "length"
    end = whole[0].text[3:5]
    (stopped,) = loaded.generate("Hello", max_new_tokens=12, stop=[end])
    assert stopped.finished == "stop"
    assert stopped.text == whole[0].text[: whole[0].text.index(end)]


def test_the_context_ends_a_sequence(loaded):
    assert len(list(loaded.tokens([[1] * 30], 100))) == 3  # rows 30 and 31 hold the first two


def test_draws_are_repeatable_and_vary(loaded):
    drawn = [loaded.generate("Hello", max_new_tokens=8, temperature=1.0, seed=seed)[0].tokens for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.7}, {"top_k": 20}, {"top_p": 0.8}, {"top_k": 40, "top_p": 0.9}]
)
def test_draws_are_those_of_transformers(tiny, loaded, sampling):
    """With the same noise."""
    prompts = torch.tensor([[7, 99, 31, 250, 4], [12, 5, 77, 140, 201]])
    settings = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, **sampling}
    torch.manual_seed(3)
    with torch.no_grad():
        out = tiny[1].generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=True, max_new_tokens=16, eos_token_id=None,
            pad_token_id=0, **settings,
        )  # fmt: skip
    drawn = zip(*loaded.tokens(prompts.tolist(), 16, Sampling(**{"temperature": 1.0, **sampling}), seed=3), strict=True)
    assert [list(each) for each in drawn] == out[:, 5:].tolist()


@pytest.mark.slow
def test_the_command_prints_several_texts(tiny, loaded, capsys):
    prompts = ["Hello", "A longer prompt"]
    run_language_model(
        tiny[2], prompts, [], None, "jit", None, max_new_tokens=6, temperature=0.9, top_k=30, top_p=0.9, seed=4
    )
    found = loaded.generate(prompts, max_new_tokens=6, temperature=0.9, top_k=30, top_p=0.9, seed=4)
    out, err = capsys.readouterr()
    assert out == "".join(printable(f"{prompt}{each.text}\n") for prompt, each in zip(prompts, found, strict=True))
    assert re.match(r"12 tokens on jit: prompt [0-9.]+ s, [0-9.]+ tokens per second", err)


def test_a_device_that_is_not_there_is_an_error(tiny):
    with pytest.raises(UsageError, match="PyTorch has no device 'cuda:1' here"):
        load(tiny[2], device="cuda:1")
    with pytest.raises(UsageError, match="the backend 'jit' does not run on 'cuda': 'xla' can"):
        run_language_model(tiny[2], ["Hello"], [], None, "jit", None, device="cuda")


def test_a_cache_that_does_not_fit_is_said(tiny, monkeypatch):
    """Before it is taken."""
    monkeypatch.setattr(loading, "available_memory", lambda: 1000)
    with pytest.raises(UsageError, match=r"the cache takes 0\.0 GiB, and 0\.0 GiB of memory are available"):
        load(tiny[2])


@pytest.mark.parametrize("options", [{"quantize": "int8"}, {"dtype": "float16"}])
def test_converted_weights_that_do_not_fit_are_said(options, tiny, tmp_path, monkeypatch):
    """Before they are converted. Those that stay as they are take no memory."""
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    with pytest.raises(UsageError, match=r"the converted weights take at least 0\.0 GiB, and 0\.0 GiB of memory are"):
        import_model(tiny[0], tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    memory.check_conversion(tiny[0], torch.float32, quantized=False)


def test_sampling_draws_among_the_likely():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).expand(400, -1)
    generator = torch.Generator().manual_seed(0)
    assert set(Sampling(1.0, top_k=2).choose(logits, generator).tolist()) == {0, 1}
    assert set(Sampling(1.0, top_p=0.7).choose(logits, generator).tolist()) == {0, 1}
    assert set(Sampling(1.0).choose(logits, generator).tolist()) == {0, 1, 2, 3}
    assert set(Sampling().choose(logits, generator).tolist()) == {0}


@pytest.mark.slow
def test_prompts_in_chunks_give_the_same_tokens(tiny, tmp_path):
    """StableHLO and TOSA have static shapes."""
    source, model, _ = tiny
    imported = load(import_model(source, tmp_path / "out", output_type="stablehlo", context=24))
    assert imported.settings.chunk == 8
    prompt = [7, 99, 31, 250, 4, 1, 2, 3, 9, 12, 13]
    tokens = [each[0] for each in imported.tokens([prompt], 12)]
    assert [tokens] == expected(model, [prompt], 12)
    (score,) = imported.score("Once upon a time")
    ids = torch.tensor([score.tokens])
    with torch.no_grad():
        assert score.perplexity == pytest.approx(float(model(ids, labels=ids).loss.exp()))


@pytest.mark.parametrize(
    "prompts, message",
    [([], "0 prompts: .* 1 to 2"), ([[1], [2], [3]], "3 prompts"), ([[1], []], "1, 0 tokens"), ([[1] * 33], "33 tok")],
)
def test_wrong_prompts_are_said(loaded, prompts, message):
    with pytest.raises(UsageError, match=message):
        list(loaded.tokens(prompts, 4))


def test_prompts_and_texts_are_no_numbers(loaded):
    for function in (loaded.generate, loaded.score):
        with pytest.raises(UsageError, match="a prompt of type list: accepted are texts; `tokens` takes"):
            function([[1, 2]])


def test_scores_are_those_of_the_model(tiny, loaded):
    """Texts of two lengths in one batch; the perplexity is that of eager PyTorch."""
    texts = ["Once upon a time", "A somewhat longer text"]
    for text, score in zip(texts, loaded.score(texts), strict=True):
        ids = torch.tensor([loaded.tokenizer(text)["input_ids"]])
        with torch.no_grad():
            logits = tiny[1](ids).logits[0, :-1].log_softmax(-1)
        expected_scores = logits.gather(1, ids[0, 1:, None]).squeeze(1)
        torch.testing.assert_close(torch.tensor(score.log_probabilities), expected_scores)
        assert score.perplexity == pytest.approx(float(torch.exp(-expected_scores.mean())), rel=1e-5)
        assert score.tokens == tuple(ids[0].tolist())
    for wrong, message in (("a", "of one token"), ("a" * 33, "texts of 33 tokens"), (["ab"] * 3, "3 texts")):
        with pytest.raises(UsageError, match=message):
            loaded.score(wrong)


def test_wrong_folders_and_numbers_are_said(tiny, tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    with pytest.raises(UsageError, match=r"holds no config\.json"):
        import_model(source, tmp_path / "out")
    (source / "config.json").write_text((tiny[0] / "config.json").read_text())
    with pytest.raises(UsageError, match=r"no tokenizer \(one of .*; there are no weights"):
        import_model(source, tmp_path / "out")
    (source / "tokenizer.json").write_text((tiny[0] / "tokenizer.json").read_text())
    shards = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(shards))
    with pytest.raises(UsageError, match="not there: model-1.safetensors, model-2.safetensors"):
        import_model(source, tmp_path / "out")
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("model", {"context": 4096}, "a context of 4096 positions: accepted is at least 2 and at most 128"),
        ("model", {"batch": 9}, "a batch of 9 sequences: accepted are 1 to 8"),
        ("model", {"dtype": "int8"}, "the dtype 'int8': accepted are float32, float16, bfloat16"),
    ]
    for name, arguments, message in wrong:
        with pytest.raises(UsageError, match=re.escape(message)):
            import_model(tiny[0].parent / name, tmp_path / "out", **arguments)
    changed = json.loads((tiny[0] / "config.json").read_text()) | {"model_type": "unheard_of"}
    (tmp_path / "other").mkdir()
    for each in tiny[0].iterdir():
        (tmp_path / "other" / each.name).write_bytes(each.read_bytes())
    (tmp_path / "other" / "config.json").write_text(json.dumps(changed))
    with pytest.raises(UsageError, match="architecture 'unheard_of'"):
        import_model(tmp_path / "other", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="is not a folder that `fx-importer llm import` wrote"):
        load(tmp_path)
    (tmp_path / "llm.json").write_text(json.dumps({**json.loads((tiny[2] / "llm.json").read_text()), "batch": "2"}))
    with pytest.raises(UsageError, match="an entry is of another type"):
        load(tmp_path)
    with pytest.raises(UsageError, match="the engine 'gpu': accepted are jit, iree, xla"):
        load(tiny[2], engine="gpu")

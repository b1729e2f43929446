"""Models with states of constant size, and with attention code of their own, in the cache of a module."""

import re
from functools import partial

import pytest
import torch
from torch.export import export

from fx_importer import UsageError
from fx_importer.frontend.repeated_modules.traced_once import exported_once
from fx_importer.llm import Chat, import_model, load
from fx_importer.llm.agreement import check_agreement
from fx_importer.llm.architectures.model_cache import cache_argument
from fx_importer.llm.decoder import Decoder
from tests.frontend.repeated_modules.test_traced_once import listing
from tests.llm.test_architectures import expected
from tests.llm.tiny_models import SINGLE, STATES, save_tiny_model, tiny_model, tokenizer

QUICK = ("mamba2", "jamba", "falcon_h1", "minimax", "rwkv")
TOKENS = torch.randint(0, 256, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in STATES]
)
def test_logits_are_those_of_each_prompt_alone(kind):
    """In a batch with padding, after another text whose states are in the buffers, with the model's own cache alone."""
    model = tiny_model(kind)
    model.set_experts_implementation("batched_mm")
    for module in model.modules():
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, float("inf"))  # which transformers uses in its first step only
    batch, argument = (1 if kind in SINGLE else 2), cache_argument(model)
    padding, tokens = torch.tensor([4, 0])[-batch:], TOKENS[-batch:]
    with torch.no_grad():
        alone = [_steps(model, argument, row[pad:]) for row, pad in zip(tokens, padding, strict=True)]
        decoder = Decoder(model, batch, 16).eval()
        for buffer in decoder.cache.buffers():
            buffer.fill_(3.0)
        steps = [decoder(tokens[:, at : at + 1], torch.tensor(at), padding) for at in range(tokens.shape[1])]
    for row, logits in enumerate(alone):
        found = torch.stack([step[row] for step in steps[int(padding[row]) :]])
        torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-4)


def _steps(model, argument: str, tokens: torch.Tensor) -> torch.Tensor:
    """Return the logits after each token, [n, vocabulary], which the model gets one by one."""
    cache, found = None, []
    for position, token in enumerate(tokens):
        ids = {"input_ids": token.reshape(1, 1), "position_ids": torch.tensor([[position]])}
        result = model(**ids, use_cache=True, **{argument: cache})
        cache = getattr(result, argument)
        found.append(result.logits[0, -1])
    return torch.stack(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mamba", "mamba2"])
def test_layers_with_states_are_traced_once(kind):
    decoder = Decoder(tiny_model(kind, num_hidden_layers=3), 2, 16).eval()
    arguments = (torch.zeros(2, 1, dtype=torch.int64), torch.tensor(0), torch.zeros(2, dtype=torch.int64))
    with torch.no_grad():
        exported = partial(export, decoder, arguments)
        assert listing(exported_once(decoder, exported)) == listing(exported())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("states")
    save_tiny_model(made / "model", "mamba", num_hidden_layers=1)
    with_template = tokenizer()
    with_template.chat_template = "{% for m in messages %}[{{ m['role'][0] }}]{{ m['content'] }}{% endfor %}[a]"
    with_template.save_pretrained(made / "model")
    return made


def test_a_conversation_continues_from_the_states(folder):
    """The next turn appends to the states; another beginning computes them anew."""
    model = load(import_model(folder / "model", folder / "out", context=64))
    assert {name.rpartition(".")[2] for name in model.caller.state} == {"conv0", "recurrent0"}
    conversation = Chat(model)
    conversation.say("Hi", max_new_tokens=3)
    again = conversation.say("So", max_new_tokens=3)
    text = "[u]Hi[a]" + conversation.messages[1]["content"] + "[u]So[a]"
    reference = tiny_model("mamba", num_hidden_layers=1)
    tokens = model.tokenizer(text)["input_ids"]
    assert [list(again.tokens)] == expected(reference, [tokens], 3)
    sequence = model.sequence()
    sequence.append(tokens[:5])
    sequence.cut(3)
    assert sequence.tokens == []
    (score,) = model.score("Once")
    ids = torch.tensor([score.tokens])
    with torch.no_grad():
        assert score.perplexity == pytest.approx(float(reference(ids, labels=ids).loss.exp()), rel=1e-4)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"cache": "paged"}, "MambaForCausalLM has layers with states, which a cache in pages does not hold"),
        ({"draft": 3}, "MambaForCausalLM has layers with states, which cannot take back tokens"),
    ],
    ids=["paged", "draft"],
)
def test_what_states_exclude_is_said(folder, tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        import_model(folder / "model", tmp_path / "out", context=16, **options)


GEMMA = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 32}


@pytest.mark.parametrize(
    "kind, config, message",
    [
        ("rwkv", {}, r"RwkvForCausalLM \(.*modeling_rwkv\.py:\d+\).* import it with batch=1"),
        ("recurrent_gemma", GEMMA, r"a layer of RecurrentGemmaForCausalLM \(.*\.py:\d+\) caches nothing"),
    ],
    ids=["rwkv", "recurrent_gemma"],
)
def test_other_caches_are_said(kind, config, message, monkeypatch):
    """With the class and its line, instead of tokens that are not those of the model."""
    from tests.llm import tiny_models

    monkeypatch.setitem(tiny_models.CONFIGS, kind, tiny_models.CONFIGS.get(kind, config))
    with pytest.raises(UsageError, match=message):
        check_agreement(tiny_model(kind), 2)


def test_no_cache_is_said():
    class Plain(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return input_ids

    with pytest.raises(UsageError, match=re.escape("Plain takes no cache (") + r".*test_states\.py:\d+\)"):
        cache_argument(Plain())

"""Conversations: answers are those of the whole conversation, of which only new tokens are passed."""

import io
import sys

import pytest

from fx_importer import UsageError
from fx_importer.cli.commands.llm_chat import chat
from fx_importer.llm import Chat, import_model, load
from fx_importer.process.optional_packages import is_installed
from tests.llm.tiny_models import save_tiny_model, tokenizer

CONTEXT = 96
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "[{{ m['role'][0] }}]{{ m['content'] }}{% endfor %}[a]"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("chat")
    save_tiny_model(made / "model", "mistral", num_hidden_layers=1, sliding_window=32)
    with_template = tokenizer()
    with_template.chat_template = TEMPLATE
    with_template.save_pretrained(made / "model")
    return made


@pytest.fixture(scope="module", params=[pytest.param("static", marks=pytest.mark.slow), "paged"])
def model(folder, request):
    """Return a model with a ring of 32 rows, and one with pages."""
    return load(import_model(folder / "model", folder / request.param, batch=2, context=CONTEXT, cache=request.param))


def test_answers_are_those_of_the_whole_conversation(model, monkeypatch):
    passed = []
    conversation = Chat(model, system="Be brief.")
    append = conversation._sequence.append
    monkeypatch.setattr(conversation._sequence, "append", lambda each: passed.append(len(each)) or append(each))
    said, parts = "[s]Be brief.", []
    for turn in ("Hi", "And then?", "So"):
        said += f"[u]{turn}[a]"
        (expected,) = load_fresh(model, said)
        answer = conversation.say(turn, max_new_tokens=9, on_text=parts.append)
        assert answer == expected
        said += answer.text
    assert "".join(parts) == "".join(each["content"] for each in conversation.messages if each["role"] == "assistant")
    assert sum(each > 1 for each in passed) == 3  # a call for each turn, of its own tokens
    assert next(each for each in passed if each > 1) == len("[s]Be brief.[u]Hi[a]")
    conversation.close()


def load_fresh(model, text):
    """Return what the model writes after ``text``, without a conversation in its cache."""
    kept = {name: each.clone() for name, each in model.caller.state.items()}
    free = list(getattr(model, "free_pages", ()))
    found = model.generate(text, max_new_tokens=9)
    for name, each in kept.items():
        model.caller.state[name] = each
    if free:
        model.free_pages[:] = free
    return found


def test_a_conversation_is_cut_where_it_differs(model):
    """After a reset nothing of it is left, and one that is too long is an error."""
    conversation = Chat(model)
    first = conversation.say("Hello", max_new_tokens=5)
    conversation.say("More", max_new_tokens=5)
    conversation.reset()
    assert conversation.say("Hello", max_new_tokens=5) == first
    with pytest.raises(UsageError, match=f"a conversation of 114 tokens: accepted is {CONTEXT}"):
        conversation.say("a" * 90, max_new_tokens=5)
    conversation.reset()
    assert len(conversation.say("Hello").tokens) == CONTEXT + 1 - len("[u]Hello[a]")
    conversation.close()


def test_what_was_interrupted_is_kept(model):
    conversation = Chat(model)
    (whole,) = model.generate("[u]Hello[a]", max_new_tokens=9)

    def interrupt(_):
        raise KeyboardInterrupt

    answer = conversation.say("Hello", max_new_tokens=9, on_text=interrupt)
    assert whole.text.startswith(answer.text)
    assert conversation.messages[-1] == {"role": "assistant", "content": answer.text}
    conversation.close()


def test_wrong_messages_are_said(model):
    conversation = Chat(model)
    conversation.messages = [{"role": "tool", "content": ""}]
    with pytest.raises(UsageError, match="no chat template for these messages: no tools"):
        conversation.say("Hello")
    conversation.close()


@pytest.mark.slow
@pytest.mark.skipif(not is_installed("jax"), reason="the extra 'xla' is not installed")
def test_chunks_that_do_not_fit_the_context(folder):
    """StableHLO's prompts have chunks of a fixed length, also behind a conversation."""
    static = load(
        import_model(folder / "model", folder / "chunks", context=CONTEXT, output_type="stablehlo"), engine="xla"
    )
    conversation, said = Chat(static), ""
    for turn, new in (("a" * 50, 3), ("b" * 20, 3)):
        said += f"[u]{turn}[a]"
        answer = conversation.say(turn, max_new_tokens=new)
        (expected,) = load_fresh(static, said)
        assert answer.tokens == expected.tokens[:new]
        said += answer.text


@pytest.mark.slow
def test_the_command_answers_lines(folder, model, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n\n/reset\nHello\n" + "a" * 200 + "\n/exit\nnever\n"))
    which = "paged" if hasattr(model, "pages") else "static"
    chat(folder / which, "jit", "cpu", None, None, max_new_tokens=4)
    (whole,) = model.generate("[u]Hello[a]", max_new_tokens=4)
    out, err = capsys.readouterr()
    assert out == f"{whole.text}\n{whole.text}\n\n"
    assert "a conversation of" in err

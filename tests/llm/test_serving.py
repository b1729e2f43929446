"""The server as a process on loopback, called by the client package of OpenAI."""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from fx_importer import UsageError
from fx_importer.cli.commands.llm_serve import serve
from fx_importer.llm import load

PROMPTS = ["Hello", "A longer prompt", "Third"]


@pytest.fixture(scope="module")
def model(served_folder):
    return load(served_folder)


@pytest.fixture(scope="module")
def url(served_folder):
    """Return the address of a server, a process that ends with the tests."""
    command = [sys.executable, "-m", "fx_importer", "llm", "serve", str(served_folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"serving 'tiny' on jit at (http://127\.0\.0\.1:\d+/v1)\n", process.stdout.readline())
        assert found
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def client(url):
    from openai import OpenAI  # it takes seconds

    with OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as made:
        yield made


def health(url):
    with urllib.request.urlopen(url.removesuffix("/v1") + "/health", timeout=10) as answer:
        return json.loads(answer.read())


def test_models_are_listed(client):
    assert [each.id for each in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "fx-importer"


def test_completions_are_those_of_generate(client, model):
    """Requests at the same time, more than there are slots, and several prompts in one."""
    expected = [each.text for each in model.generate(PROMPTS, max_new_tokens=20)]

    def ask(prompt):
        return client.completions.create(model="tiny", prompt=prompt, max_tokens=20, temperature=0)

    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(ask, PROMPTS))
    assert [each.choices[0].text for each in answers] == expected
    assert answers[0].choices[0].finish_reason == "length"
    assert answers[0].usage.to_dict() == {"prompt_tokens": 5, "completion_tokens": 20, "total_tokens": 25}
    together = ask(PROMPTS)
    assert [(each.index, each.text) for each in together.choices] == list(enumerate(expected))
    assert ask(model.tokenizer(PROMPTS[0])["input_ids"]).choices[0].text == expected[0]


def test_texts_stream(client, model):
    (whole,) = model.generate(PROMPTS[1], max_new_tokens=20)
    options = {"include_usage": True}
    parts = list(
        client.completions.create(
            model="tiny", prompt=PROMPTS[1], max_tokens=20, temperature=0, stream=True, stream_options=options
        )
    )
    assert "".join(each.choices[0].text for each in parts[:-1]) == whole.text
    assert [each.choices[0].finish_reason for each in parts[:-1]] == [None] * (len(parts) - 2) + ["length"]
    assert parts[-1].choices == []
    assert parts[-1].usage.completion_tokens == 20


def test_chats_take_the_template(client, model):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    (whole,) = model.generate("[system]Be brief.[user]Hi[assistant]", max_new_tokens=12)
    answer = client.chat.completions.create(model="tiny", messages=messages, max_completion_tokens=12, temperature=0)
    assert answer.choices[0].message.content == whole.text
    assert answer.choices[0].message.role == "assistant"
    parts = list(
        client.chat.completions.create(model="tiny", messages=messages, max_tokens=12, temperature=0, stream=True)
    )
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(each.choices[0].delta.content or "" for each in parts) == whole.text
    assert parts[-1].choices[0].finish_reason == "length"


def test_stops_and_seeds(client, model):
    (whole,) = model.generate(PROMPTS[0], max_new_tokens=20)
    end = whole.text[4:6]
    answer = client.completions.create(model="tiny", prompt=PROMPTS[0], max_tokens=20, temperature=0, stop=[end])
    assert answer.choices[0].text == whole.text[: whole.text.index(end)]
    assert answer.choices[0].finish_reason == "stop"

    def draw(seed):
        found = client.completions.create(
            model="tiny", prompt="Hello", max_tokens=8, temperature=1.2, top_p=0.9, seed=seed, n=2
        )
        return [each.text for each in found.choices]

    drawn = [draw(seed) for seed in (1, 1, 7)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]
    expected = model.generate("Hello", max_new_tokens=8, temperature=1.2, top_p=0.9, seed=1)
    assert drawn[0][0] == expected[0].text


def test_pages_of_cancelled_requests_are_free(client, url):
    """Streams that nobody reads any more, and calls whose client goes away."""
    stream = client.completions.create(model="tiny", prompt="Hello", max_tokens=90, temperature=0, stream=True)
    next(iter(stream))
    stream.close()
    body = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 90, "n": 16}).encode()
    asked = urllib.request.Request(f"{url}/completions", body, {"Content-Type": "application/json"})
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(asked, timeout=0.05)
    state = {}
    for _ in range(100):
        state = health(url)
        if state["free_pages"] == state["pages"] and not state["running"] + state["waiting"]:
            return
        time.sleep(0.1)
    raise AssertionError(state)


WRONG = [
    ({"model": "other"}, 404, "model", "the model 'other' does not exist: there is 'tiny'"),
    ({"prompt": "a" * 97}, 400, "prompt", "a prompt of 97 tokens: accepted is 1 to 96"),
    ({"prompt": ""}, 400, "prompt", "a prompt of 0 tokens"),
    ({"prompt": [[1, 900]]}, 400, "prompt", "a prompt with the token 900: accepted are 0 to 256"),
    ({"prompt": {"a": 1}}, 400, "prompt", "'prompt' is accepted as"),
    ({"prompt": "\ud800"}, 400, "prompt", "'prompt' is accepted as"),
    ({"temperature": -1}, 400, "temperature", "a temperature of -1.0"),
    ({"top_p": 7}, 400, "top_p", "top_p=7.0: accepted is"),
    ({"max_tokens": 0}, 400, "max_tokens", "'max_tokens' is accepted as an integer from 1"),
    ({"stop": ["a"] * 5}, 400, "stop", "'stop' is accepted as"),
    ({"logprobs": 3}, 400, "logprobs", "'logprobs' is not supported"),
    ({"beam_width": 3}, 400, "beam_width", "the field 'beam_width' is not known"),
    ({"stream": "yes"}, 400, "stream", "'stream' is accepted as a boolean"),
]


@pytest.mark.parametrize("changes, status, param, message", WRONG)
def test_errors_are_those_of_the_api(url, changes, status, param, message):
    body = {"model": "tiny", "prompt": "a", **changes}
    error = refused(url, json.dumps(body).encode(), status)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(message)


def refused(url, body, status, path="completions", media="application/json"):
    """Return the error of a call that is refused with ``status``."""
    asked = urllib.request.Request(f"{url}/{path}", body, {"Content-Type": media})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(asked, timeout=30)
    with raised.value as error:
        assert error.code == status
        return json.loads(error.read())["error"]


def test_other_wrong_calls(url, client):
    from openai import APIStatusError

    assert refused(url, b"{", 400)["message"].startswith("the body is not JSON")
    assert refused(url, b"[]", 400)["message"] == "the body is accepted as a JSON object"
    assert refused(url, b"{}", 415, media="text/plain")["message"].startswith("the content type 'text/plain'")
    assert refused(url, b"{}", 404, "embeddings")["message"] == "POST /v1/embeddings: Not Found"
    assert refused(url, b"{}", 405, "models")["message"] == "POST /v1/models: Method Not Allowed"
    chat = {"model": "tiny", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
    assert refused(url, json.dumps(chat).encode(), 400, "chat/completions")["param"] == "messages[0].content"
    with pytest.raises(APIStatusError, match="'tools' is not supported"):
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "a"}], tools=[{"type": "function"}]
        )
    assert health(url)["status"] == "ok"


def test_other_host_names_are_refused(url):
    """As of pages that a browser shows, whose names lead here."""
    asked = urllib.request.Request(f"{url}/models", headers={"Host": "example.org"})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(asked, timeout=30)
    with raised.value as error:
        assert (error.code, error.read()) == (400, b"Invalid host header")


def test_a_static_cache_is_not_served(served_folder, tmp_path):
    (tmp_path / "llm.json").write_text(
        json.dumps(json.loads((served_folder / "llm.json").read_text()) | {"page_size": None})
    )
    with pytest.raises(UsageError, match="has a static cache: import the model with --cache paged"):
        serve(tmp_path, "jit", "cpu", "127.0.0.1", 0, None, None)
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1"):
        serve(served_folder, "jit", "cpu", "192.0.2.1", 0, None, None)

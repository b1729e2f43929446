"""Validate request bodies against the supported subset of the OpenAI API."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fx_importer.errors import UsageError
from fx_importer.llm.sampling import Sampling


class RequestError(Exception):
    """A rejected request, with the fields of an API error.

    Args:
        message: the error message.
        param: the name of the invalid field.
        status: the HTTP status.
        code: the API's error code.
    """

    def __init__(self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None):
        super().__init__(message)
        self.message, self.param, self.status, self.code = message, param, status, code


_IGNORED = ("user", "metadata", "store", "safety_identifier", "service_tier", "prompt_cache_key")
"""Fields that do not affect the text."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Fields that are accepted only with a value that has no effect, or null."""
_COMMON = (
    "model", "n", "stream", "stream_options", "stop", "temperature", "top_p", "top_k", "seed", "max_tokens",
)  # fmt: skip
MAX_STOPS, MAX_STOP_CHARACTERS, MAX_CHOICES = 4, 256, 16


def shortened(text: str, most: int = 64) -> str:
    """Return ``text`` from a client, as an answer quotes it: at most ``most`` characters, then an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}…"


@dataclass(frozen=True)
class RequestOptions:
    """The options shared by completion and chat requests."""

    model: str
    choices: int
    stream: bool
    include_usage: bool
    stop: tuple[str, ...]
    sampling: Sampling
    seed: int | None
    max_tokens: int | None

    @classmethod
    def read(cls, body: Mapping[str, Any], *own: str) -> RequestOptions:
        """Parse ``body``, which may also have the fields ``own``. Raises `RequestError` if a field is not accepted."""
        for name, value in body.items():
            if name in _NEUTRAL and value is not None and value not in _NEUTRAL[name]:
                raise RequestError(f"'{name}' is not supported: leave it out", name)
            if name not in (*_COMMON, *own, *_IGNORED, *_NEUTRAL):
                raise RequestError(f"the field '{shortened(name)}' is not known", shortened(name))
        stream_options = _field(body, "stream_options", dict, {}, "an object")
        temperature, top_p = (_number(body, name, 1.0) for name in ("temperature", "top_p"))
        most = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
        try:
            top_k = _integer(body, "top_k", 1) if body.get("top_k") not in (None, -1, 0) else None  # like other servers
            sampling = Sampling(temperature, top_k, None if top_p == 1 else top_p)
        except UsageError as error:
            raise RequestError(str(error), "top_p" if "top_p" in str(error) else "temperature") from None
        return cls(
            model=_field(body, "model", str, None, "a string"),
            choices=_integer(body, "n", 1, MAX_CHOICES) or 1,
            stream=_field(body, "stream", bool, False, "a boolean"),
            include_usage=_field(stream_options, "include_usage", bool, False, "a boolean"),
            stop=_stops(body),
            sampling=sampling,
            seed=_integer(body, "seed", -(2**63), 2**63 - 1),
            max_tokens=_integer(body, most, 1),
        )


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > MAX_STOPS or not all(map(_is_text, stops)):
        raise RequestError(f"'stop' is accepted as a string, or a list of at most {MAX_STOPS}", "stop")
    if any(len(text) > MAX_STOP_CHARACTERS for text in stops):
        raise RequestError(f"'stop' is accepted as strings of at most {MAX_STOP_CHARACTERS} characters", "stop")
    return tuple(stops)


def prompts_of(body: Mapping[str, Any]) -> list[str | list[int]]:
    """Return the prompts of a completion, as texts or tokens. Raises `RequestError` for anything else."""
    prompt: Any = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        prompt = [prompt]
    listed: list[Any] = prompt if isinstance(prompt, list) else [prompt]
    if not listed or not all(_is_text(item) or _is_tokens(item) for item in listed):
        raise RequestError("'prompt' is accepted as a string, a list of strings, or lists of tokens", "prompt")
    return listed


def messages_of(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the messages of a chat, with text contents. Raises `RequestError` for anything else."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("'messages' is accepted as a list of objects with 'role' and 'content'", "messages")
    return [_message(item, f"messages[{number}]") for number, item in enumerate(messages)]


def _message(message: Any, param: str) -> dict[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"'{param}' is accepted as an object with 'role' and 'content'", param)
    content: Any = message.get("content")
    if isinstance(content, list):
        if not all(
            isinstance(part, dict) and part.get("type") == "text" and _is_text(part.get("text")) for part in content
        ):
            raise RequestError(f"'{param}.content' is accepted as text only", f"{param}.content")
        content = "".join(part["text"] for part in content)
    if not _is_text(content):
        raise RequestError(f"'{param}.content' is accepted as a string, or a list of texts", f"{param}.content")
    if message.get("tool_calls"):
        raise RequestError(f"'{param}.tool_calls' is not supported", f"{param}.tool_calls")
    return {"role": message["role"], "content": content}


def _is_text(value: Any) -> bool:
    """Whether ``value`` is a string without lone surrogates, which JSON can have."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


def _field(body: Mapping[str, Any], name: str, kind: type, default: Any, accepted: str) -> Any:
    value = default if body.get(name) is None else body[name]
    if not isinstance(value, kind):
        raise RequestError(f"'{name}' is accepted as {accepted}", name)
    return value


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = default if body.get(name) is None else body[name]
    try:
        if isinstance(value, bool) or not math.isfinite(value):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise RequestError(f"'{name}' is accepted as a number", name) from None


def _integer(body: Mapping[str, Any], name: str, least: int, most: int | None = None) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or value < least or (most is not None and value > most):
        raise RequestError(
            f"'{name}' is accepted as an integer from {least}{'' if most is None else f' to {most}'}", name
        )
    return value

"""Turn the bodies of HTTP requests into requests of the scheduler."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fx_importer.errors import UsageError
from fx_importer.llm.chat import chat_tokens
from fx_importer.llm.scheduler import Request, Scheduler
from fx_importer.llm.serving.batcher import MAX_SEQUENCES
from fx_importer.llm.serving.bodies import parsed
from fx_importer.llm.serving.requests import RequestError, RequestOptions, messages_of, prompts_of, shortened

CHARACTERS_PER_TOKEN = 16
"""Characters of a prompt for each token of the context. Longer prompts are refused without tokenizing them."""
_DEFAULT_MAX_TOKENS = 16
"""The default ``max_tokens`` of a completion. A chat defaults to the rest of the context."""


@dataclass(frozen=True)
class Prepared:
    """A valid request."""

    options: RequestOptions
    sequences: list[Request]
    """One request of the scheduler for each text, in the order of the answer's choices."""


class Preparation:
    """Parses, validates and tokenizes requests. It takes time, so it belongs in a thread without the event loop.

    Tokenizers are not thread-safe, so each thread needs a preparation of its own.

    Args:
        scheduler: the scheduler of the model.
        name: the model's name in requests.
    """

    def __init__(self, scheduler: Scheduler, name: str):
        self.scheduler, self.name = scheduler, name
        self.tokenizer = copy.deepcopy(scheduler.model.tokenizer)
        self.context = scheduler.model.settings.context
        self.most_characters = CHARACTERS_PER_TOKEN * self.context

    def completion(self, data: bytes) -> Prepared:
        """Prepare a completion of one or more prompts. Raises `RequestError`."""
        body, options = self._read(data, "prompt")
        prompts = prompts_of(body)
        self._check_count(len(prompts) * options.choices, "prompt")
        tokens = [self._tokens(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
        return self._prepared(tokens, options, options.max_tokens or _DEFAULT_MAX_TOKENS, "prompt")

    def chat(self, data: bytes) -> Prepared:
        """Prepare an answer to a conversation, in the tokenizer's chat template. Raises `RequestError`."""
        body, options = self._read(data, "messages", "max_completion_tokens")
        messages = messages_of(body)
        if len(messages) > self.context:
            message = f"{len(messages)} messages: accepted are at most {self.context}, the context"
            raise RequestError(message, "messages", code="context_length_exceeded")
        self._check_length(sum(len(message["role"]) + len(message["content"]) for message in messages), "messages")
        try:
            tokens = chat_tokens(self.tokenizer, messages)
        except UsageError as error:
            raise RequestError(shortened(str(error), 1000), "messages") from None
        return self._prepared([tokens], options, options.max_tokens or self.context, "messages")

    def _read(self, data: bytes, *own: str) -> tuple[Mapping[str, Any], RequestOptions]:
        body = parsed(data)
        options = RequestOptions.read(body, *own)
        self.check_model(options.model)
        return body, options

    def check_model(self, name: str) -> None:
        """Raise `RequestError` if ``name`` is not the model's."""
        if name != self.name:
            message = f"the model '{shortened(name)}' does not exist: there is '{self.name}'"
            raise RequestError(message, "model", status=404, code="model_not_found")

    def _tokens(self, prompt: str) -> Sequence[int]:
        self._check_length(len(prompt), "prompt")
        return self.tokenizer(prompt)["input_ids"]

    def _check_length(self, characters: int, param: str) -> None:
        if characters > self.most_characters:
            message = (
                f"a prompt of {characters} characters: accepted are at most {self.most_characters}, "
                f"{CHARACTERS_PER_TOKEN} for each token of the context"
            )
            raise RequestError(message, param, code="context_length_exceeded")

    def _check_count(self, sequences: int, param: str) -> None:
        if sequences > MAX_SEQUENCES:
            message = f"a request for {sequences} sequences: accepted are at most {MAX_SEQUENCES}"
            raise RequestError(message, param)

    def _prepared(self, prompts: Sequence[Sequence[int]], options: RequestOptions, most: int, param: str) -> Prepared:
        first = secrets.randbits(62) if options.seed is None else options.seed
        try:
            sequences = [
                self.scheduler.request(prompt, max_new_tokens=most, sampling=options.sampling, seed=first + choice)
                for prompt in prompts
                for choice in range(options.choices)
            ]
        except UsageError as error:
            too_long = any(len(prompt) > self.context for prompt in prompts)
            code = "context_length_exceeded" if too_long else None
            raise RequestError(shortened(str(error), 1000), param, code=code) from None
        return Prepared(options, sequences)

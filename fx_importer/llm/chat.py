"""A conversation with a model, turn by turn. Earlier turns stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fx_importer.errors import UsageError
from fx_importer.llm.sampling import Sampling
from fx_importer.llm.text_stream import Completion, TextStream

if TYPE_CHECKING:
    from fx_importer.llm.language_model import LanguageModel


def chat_tokens(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Return the tokens of a conversation, up to the start of the answer.

    Raises:
        UsageError: if the tokenizer has no chat template, or the template rejects the messages.
    """
    from jinja2 import TemplateError

    try:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    except (TemplateError, ValueError) as error:
        raise UsageError(f"the tokenizer has no chat template for these messages: {error}") from None
    return tokenizer(text, add_special_tokens=False)["input_ids"]


class Chat:
    """A conversation in the format of the tokenizer's chat template.

    Each turn passes only the tokens after the longest prefix that is already in the cache.

    Args:
        model: a model returned by `load`. With a static cache, the conversation owns the cache until `close`.
        system: the system prompt.
    """

    def __init__(self, model: LanguageModel, *, system: str | None = None):
        self._model = model
        self._sequence = model.sequence()
        self._beginning = [] if system is None else [{"role": "system", "content": system}]
        self.messages: list[dict[str, str]] = list(self._beginning)
        """The messages so far, with ``role`` and ``content``."""

    def say(
        self,
        text: str,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: Sequence[str] = (),
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Return the answer to ``text``, and stream it to ``on_text``. See `LanguageModel.generate` for other options.

        On ``KeyboardInterrupt``, from the user or from ``on_text``, the partial answer is returned.

        Raises:
            UsageError: if the conversation is longer than the context, or there is no chat template.
        """
        sampling = Sampling(temperature, top_k, top_p)
        messages = [*self.messages, {"role": "user", "content": text}]
        tokens, context = chat_tokens(self._model.tokenizer, messages), self._model.settings.context
        if len(tokens) > context:
            raise UsageError(f"a conversation of {len(tokens)} tokens: accepted is {context}, the context: start anew")
        most = min(context + 1 - len(tokens), context if max_new_tokens is None else max_new_tokens)
        stream = TextStream(self._model.tokenizer, stop)
        try:
            self._answer(tokens, most, sampling, torch.Generator().manual_seed(seed), stream, on_text)
        except KeyboardInterrupt:
            stream.rest()
        self.messages = [*messages, {"role": "assistant", "content": stream.text}]
        return stream.completion()

    def _answer(
        self,
        tokens: Sequence[int],
        most: int,
        sampling: Sampling,
        generator: torch.Generator,
        stream: TextStream,
        on_text: Callable[[str], None] | None,
    ) -> None:
        cached = self._sequence.tokens
        same = next(
            (at for at, pair in enumerate(zip(cached, tokens, strict=False)) if pair[0] != pair[1]), len(cached)
        )
        self._sequence.cut(min(same, len(tokens) - 1))  # the last token is always passed, for its logits
        logits = self._sequence.append(tokens[len(self._sequence.tokens) :])
        for number in range(most):
            (token,) = sampling.choose(logits, generator).tolist()
            added = stream.end() if token in self._model.settings.stop_tokens else stream.add(token)
            last = number + 1 == most and not stream.done
            added += stream.rest() if last else ""
            if added and on_text is not None:
                on_text(added)
            if stream.done or last:
                return
            logits = self._sequence.append([token])

    def reset(self) -> None:
        """Forget all messages except the system prompt."""
        self.messages = list(self._beginning)

    def close(self) -> None:
        """Free the cache."""
        self._sequence.close()

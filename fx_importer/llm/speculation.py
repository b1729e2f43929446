"""Speculative decoding: a small model proposes tokens, and a large model verifies them in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fx_importer.errors import UsageError
from fx_importer.llm.cached_sequence import CachedSequence
from fx_importer.llm.language_model import LanguageModel


def speculate(
    model: LanguageModel, draft: LanguageModel, prompt: Sequence[int], max_new_tokens: int
) -> Iterator[list[int]]:
    """Yield the most likely next tokens of ``model``, in groups that one call of its ``verify`` accepts.

    For any ``draft``, these are the tokens that ``model`` alone would generate, up to rounding differences between its
    functions. See Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding, at
    temperature 0.

    Args:
        model: a model imported with ``draft=``, the number of proposed tokens.
        draft: a model with the same vocabulary.
        prompt: the prompt's tokens.
        max_new_tokens: the number of tokens, capped to the context.

    Raises:
        UsageError: if the model has no ``verify``, or the prompt does not fit the context of both models.
    """
    most = model.settings.draft
    if most is None:
        raise UsageError(
            "the module has no function 'verify': import the model with draft=, the number of proposed tokens"
        )
    context = min(model.settings.context, draft.settings.context)
    if not 1 <= len(prompt) <= context:
        raise UsageError(f"a prompt of {len(prompt)} tokens: accepted is 1 to {context}, the context of both models")
    sequence, proposing = model.sequence(), draft.sequence()
    left = min(max_new_tokens, context + 1 - len(prompt))
    text = [*prompt, int(sequence.append(prompt).argmax(-1))]
    try:
        yield text[-1:]
        left -= 1
        while left:
            proposed = _proposed(proposing, text, min(most, left - 1))
            likely = sequence.verify([text[-1], *proposed]).argmax(-1).tolist()
            same = next((at for at, token in enumerate(proposed) if token != likely[at]), len(proposed))
            accepted = likely[: same + 1]
            text += accepted
            sequence.cut(len(text) - 1)  # the last token starts the next call
            yield accepted
            left -= len(accepted)
    finally:
        sequence.close()
        proposing.close()


def _proposed(sequence: CachedSequence, text: Sequence[int], number: int) -> list[int]:
    """Return the next ``number`` tokens that the draft model finds most likely after ``text``."""
    same = next((at for at, (old, new) in enumerate(zip(sequence.tokens, text, strict=False)) if old != new), None)
    sequence.cut(min(len(sequence.tokens) if same is None else same, len(text) - 1))
    proposed: list[int] = []
    new = text[len(sequence.tokens) :]
    while len(proposed) < number:
        proposed.append(int(sequence.append(new).argmax(-1)))
        new = proposed[-1:]
    return proposed

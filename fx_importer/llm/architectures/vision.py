"""Models that take images: the image encoder, and its embeddings in place of image tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_WITH_CONNECTOR = ("smolvlm", "idefics3")
"""Models whose ``get_image_features`` drops padded images, by the values of pixels."""
_PREFIX = ("paligemma",)
"""Models whose prompt tokens attend to the whole prompt, and count positions from 1."""
VISION = (*_WITH_CONNECTOR, "llava", "vipllava", "aya_vision", "internvl", *_PREFIX)
"""The transformers model types with a fixed-size image encoder and a projection to token embeddings."""


def takes_images(model: Any) -> bool:
    """Whether a transformers model is one of `VISION`."""
    return model.config.model_type in VISION


def attends_to_prompt(model: Any) -> bool:
    """Whether tokens of a prompt attend to later ones of it, so that the prompt has to be in one call."""
    return model.config.model_type in _PREFIX


def first_position(model: Any) -> int:
    """Return the position that the code of ``model`` gives the first token."""
    return 1 if model.config.model_type in _PREFIX else 0


class ImageEncoder(torch.nn.Module):
    """Computes image embeddings like the model's own ``get_image_features``, for images without padding.

    Args:
        model: a model of one of the `VISION` types. Weights keep their names.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model.model
        self._connects = model.config.model_type in _WITH_CONNECTOR

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Return the embeddings [N, tokens, hidden] of images [N, 3, H, W] from the model's image processor."""
        pixels = pixel_values.to(self.model.dtype)
        if self._connects:
            return self.model.connector(self.model.vision_model(pixel_values=pixels).last_hidden_state)
        features = self.model.get_image_features(pixel_values=pixels, return_dict=True).pooler_output
        return features if isinstance(features, Tensor) else torch.stack(list(features))


def example_image(model: Any) -> Tensor:
    """Return one image, [1, 3, H, W], of the size that the model takes."""
    vision = model.config.vision_config
    size = vision.image_size
    return torch.zeros(1, vision.num_channels, *((size, size) if isinstance(size, int) else size))


def with_images(model: Any, tokens: Tensor, images: Tensor) -> Tensor:
    """Return the embeddings of ``tokens`` [B, n], replaced by ``images`` [B, n, hidden] at image tokens."""
    is_image = tokens == model.config.image_token_id
    embedded = model.get_input_embeddings()(tokens.masked_fill(is_image, 0))  # it may be none of the vocabulary
    return torch.where(is_image.unsqueeze(2), images.to(embedded.dtype), embedded)

"""Models that take images: the image encoder, and its embeddings in place of image tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

VISION = ("smolvlm", "idefics3")
"""The transformers model types with a fixed-size image encoder and a connector to token embeddings."""


def takes_images(model: Any) -> bool:
    """Whether a transformers model is one of `VISION`."""
    return model.config.model_type in VISION


class ImageEncoder(torch.nn.Module):
    """Computes image embeddings like the model's own ``get_image_features``, for images without padding.

    Args:
        model: a model of one of the `VISION` types. Weights keep their names.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model.model

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Return the embeddings [N, tokens, hidden] of images [N, 3, H, W] from the model's image processor."""
        pixels = pixel_values.to(self.model.dtype)
        return self.model.connector(self.model.vision_model(pixel_values=pixels).last_hidden_state)


def example_image(model: Any) -> Tensor:
    """Return one image, [1, 3, H, W], of the size that the model takes."""
    vision = model.config.vision_config
    return torch.zeros(1, vision.num_channels, vision.image_size, vision.image_size)


def with_images(model: Any, tokens: Tensor, images: Tensor) -> Tensor:
    """Return the embeddings of ``tokens`` [B, n], replaced by ``images`` [B, n, hidden] at image tokens."""
    embedded = model.get_input_embeddings()(tokens)
    return torch.where((tokens == model.config.image_token_id).unsqueeze(2), images.to(embedded.dtype), embedded)

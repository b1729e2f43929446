"""Models that take images: their encoder, and what of a prompt it replaces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

VISION = ("smolvlm", "idefics3")
"""The model types, of transformers: an encoder of images of one size, and a connector to embeddings of tokens."""


def takes_images(model: Any) -> bool:
    """Whether a model of transformers is one of `VISION`."""
    return model.config.model_type in VISION


class ImageEncoder(torch.nn.Module):
    """The embeddings of images, as the model's own ``get_image_features`` returns them for images without padding.

    Args:
        model: of `VISION`. Weights keep their names.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model.model

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Return the embeddings [N, tokens, hidden] of images [N, 3, H, W] that the model's image processor made."""
        pixels = pixel_values.to(self.model.dtype)
        return self.model.connector(self.model.vision_model(pixel_values=pixels).last_hidden_state)


def example_image(model: Any) -> Tensor:
    """Return one image, [1, 3, H, W], of the size that the model was made for."""
    vision = model.config.vision_config
    return torch.zeros(1, vision.num_channels, vision.image_size, vision.image_size)


def with_images(model: Any, tokens: Tensor, images: Tensor) -> Tensor:
    """Return the embeddings of ``tokens`` [B, n], with those of ``images`` [B, n, hidden] for the image token."""
    embedded = model.get_input_embeddings()(tokens)
    return torch.where((tokens == model.config.image_token_id).unsqueeze(2), images.to(embedded.dtype), embedded)

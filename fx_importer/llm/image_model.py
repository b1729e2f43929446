"""A language model with image inputs and a static cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from fx_importer import UsageError
from fx_importer.llm.batch_model import BatchModel
from fx_importer.llm.sampling import Sampling
from fx_importer.llm.settings import MOST
from fx_importer.llm.text_stream import Completion


class ImageModel(BatchModel):
    """A model whose prompts can have images. Their embeddings replace the prompt's image tokens, in order."""

    _images: Sequence[torch.Tensor] = ()

    def encode_image(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return the embeddings, [N, tokens, hidden], of images [N, 3, H, W] from the model's image processor.

        Raises:
            UsageError: if the images have another size than the model's.
        """
        return torch.cat([self.caller["encode_image"](pixel_value.unsqueeze(0)) for pixel_value in pixel_values])

    def generate(
        self, prompts: str | Sequence[str], *, images: Sequence[torch.Tensor] = (), **options: Any
    ) -> list[Completion]:
        """Continue each prompt, as `LanguageModel.generate` does.

        Args:
            prompts: texts with one image token per embedding, as the model's processor writes them.
            images: the images of each prompt, [N, 3, H, W]; by default none.
            options: see `LanguageModel.generate`.

        Raises:
            UsageError: as `LanguageModel.generate` does, and if the numbers of image tokens and embeddings differ.
        """
        self._images = images
        try:
            return super().generate(prompts, **options)
        finally:
            self._images = ()

    def tokens(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Sampling | None = None,
        seed: int = 0,
        images: Sequence[torch.Tensor] = (),
    ) -> Iterator[list[int]]:
        """Yield the next token of each prompt, step by step. `generate` describes ``images``."""
        self._images = images or self._images
        if len(self._images) not in (0, len(prompts)):
            raise UsageError(f"images for {len(self._images)} of {len(prompts)} prompts: pass those of each, or none")
        return super().tokens(prompts, max_new_tokens, sampling, seed)

    def _prefill(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        queue, self._images = list(self._images), ()
        embedded = self._no_images(tokens)
        for row, is_image in enumerate(tokens == self.settings.image_token):
            images = queue[row if row < len(queue) else 0] if queue else None  # unused rows repeat the first prompt
            rows = torch.empty(0, embedded.shape[2]) if images is None else self.encode_image(images).flatten(0, 1)
            if len(rows) != int(is_image.sum()):
                raise UsageError(
                    f"prompt {row} has {int(is_image.sum())} image tokens, and its images {len(rows)} embeddings: "
                    "write one token for each"
                )
            embedded[row, is_image] = rows.to(embedded.dtype)
        *_, logits = self._in_chunks(self._prefill_part, tokens, padding, embedded, most=MOST)
        return logits

    def _prefill_part(self, *arguments: torch.Tensor) -> torch.Tensor:
        tokens, position, padding, last, *images = arguments
        if not images:
            if (tokens == self.settings.image_token).any():
                raise UsageError("image tokens in a text without images")
            images = [self._no_images(tokens)]
        return self.caller["prefill"](tokens, position, padding, last, images=images[0])

    def _no_images(self, tokens: torch.Tensor) -> torch.Tensor:
        (input_,) = [
            argument for argument in self.caller.manifest.functions["prefill"].arguments if argument.name == "images"
        ]
        hidden = int((input_.type.shape or (0,))[-1])
        return torch.zeros(*tokens.shape, hidden, dtype=getattr(torch, input_.type.dtype))

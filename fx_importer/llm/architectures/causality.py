"""Check that a transformers model is a decoder that runs alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

from fx_importer.errors import UsageError


@contextmanager
def checked_causal(model: PreTrainedModel) -> Iterator[None]:
    """Watch a call of ``model`` in the body, and then check its attention modules by their ``is_causal``.

    Modules that the call does not reach, such as an image encoder, do not count.

    Raises:
        UsageError: if a module attends to later tokens, or to an encoder that the model does not have.
    """
    reached: set[torch.nn.Module] = set()
    handles = [module.register_forward_pre_hook(lambda module, _: reached.add(module)) for module in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for name, module in model.named_modules():
        if getattr(module, "is_causal", True) is not False:
            continue
        if module in reached:
            raise UsageError(
                f"{type(model).__name__} is an encoder: its '{name}' attends to later tokens. Accepted are causal "
                "language models, which are trained with is_decoder=True in config.json where an architecture is both"
            )
        if model.get_submodule(name.rpartition(".")[0]) in reached:
            raise UsageError(
                f"{type(model).__name__} is the decoder of an encoder-decoder: its '{name}' attends to the results of "
                "an encoder, which is not there. Accepted are causal language models that run alone"
            )

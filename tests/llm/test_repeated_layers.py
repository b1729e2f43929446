"""Layers that are traced once: the exported program is that of torch.export, node for node."""

from functools import partial
from typing import Any

import pytest
import torch
from torch.export import Dim, export
from transformers import AutoConfig, AutoModelForCausalLM

from fx_importer.frontend.repeated_modules.traced_once import exported_once
from fx_importer.llm.entry_points import PagedCache, StaticCache
from tests.frontend.repeated_modules.test_traced_once import listing
from tests.llm.tiny_models import CONFIGS, VOCABULARY

LAYERS = 4
SLIDING = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"]
COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "vocab_size": VOCABULARY,
}


def tiny(kind: str, **changes: Any) -> Any:
    given = COMMON | CONFIGS[kind] | changes
    if "layer_types" in given:
        given["layer_types"] = SLIDING
    if kind == "gpt2":
        given = {"n_embd": 32, "n_layer": LAYERS, "n_head": 4, "n_positions": 128, "vocab_size": VOCABULARY, **changes}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **given), dtype=torch.bfloat16).eval()


STATIC, PAGED = StaticCache(2, 48), PagedCache(2, 48, 16, 7)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, form, traced",
    [
        pytest.param("llama", PAGED, 1, id="llama"),
        pytest.param("gemma3_text", STATIC, 2, id="gemma3_text"),
        pytest.param("gpt2", STATIC, 1, id="gpt2"),
        pytest.param("mixtral", STATIC, 1, id="mixtral"),
        pytest.param("smollm3", STATIC, 2, id="smollm3"),
    ],
)
def test_program_is_that_of_export(kind, form, traced):
    """Of prompts and of one token. Sliding and full layers differ, and those with and without rotations.

    `test_states` has models that are traced always.
    """
    changes = {"llama": {"num_hidden_layers": 2}, "smollm3": {"no_rope_layers": [1, 1, 0, 0]}}.get(kind, {})
    decoder = form.decoder(tiny(kind, **changes)).eval()
    for steps in (7, 1):
        place, shapes = form.place(2, None)
        args, given = (torch.zeros(2, steps, dtype=torch.int64), *place), (None, *shapes)
        if steps > 1:
            args, given = (*args, torch.tensor(3)), ({1: Dim("steps", min=1, max=48)}, *shapes, None)
        with torch.no_grad():
            exported = partial(export, decoder, args, dynamic_shapes=given)
            said: list[str] = []
            assert listing(exported_once(decoder, exported, said.append)) == listing(exported())
            assert f"are copies of {traced} traced ones" in said[0]

"""Models that take images: tokens are those of ``generate`` with the image."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from fx_importer import UsageError
from fx_importer.llm import ImageModel, import_model, load
from fx_importer.llm.architectures.vision import ImageEncoder
from fx_importer.llm.decoder import Decoder
from fx_importer.process.optional_packages import is_installed
from tests.llm.test_architectures import ENGINES
from tests.llm.tiny_models import END, VOCABULARY, tokenizer

IMAGE, TOKENS = 255, 4
PROMPTS = [[5, 6, *[IMAGE] * TOKENS, 7, 8, 9], [11, *[IMAGE] * TOKENS, 12, *[IMAGE] * TOKENS, 13]]
STEPS = 16
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "smolvlm": ("smolvlm_vision", "llama", {"scale_factor": 2}),
    "idefics3": ("idefics3_vision", "llama", {"scale_factor": 2}),
    "llava": ("clip_vision_model", "llama", {}),
    "vipllava": ("clip_vision_model", "llama", {"vision_feature_layers": [-1, -2]}),
    "aya_vision": ("siglip_vision_model", "cohere2", {}),
    "internvl": ("internvl_vision", "qwen2", {}),
    "paligemma": ("siglip_vision_model", "gemma", {"projection_dim": 32}),
}
"""By the type of the model: those of the vision and text models, and more of the configuration."""
SIDES = {"llava": 8, "vipllava": 8, "paligemma": 8}
"""The height and width of images, in patches of 4; 16 of models that merge 2 by 2 of them."""


def save(folder, kind, seed):
    torch.manual_seed(seed)
    vision_type, text_type, more = KINDS[kind]
    common = {"intermediate_size": 64, "num_attention_heads": 4}
    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": VOCABULARY}
    side = SIDES.get(kind, 16)
    size = (
        {"image_size": [side] * 2, "patch_size": [4] * 2}
        if kind == "internvl"
        else {"image_size": side, "patch_size": 4}
    )
    config = AutoConfig.for_model(
        kind,
        image_token_id=IMAGE,
        pad_token_id=END,
        text_config={"model_type": text_type, **common, **text, "max_position_embeddings": 128, "eos_token_id": END},
        vision_config={
            "model_type": vision_type,
            **common,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "projection_dim": 32,
            **size,
        },
        **more,
    )
    model = AutoModelForImageTextToText.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model


def pixels_of(kind):
    """Return one image, and two."""
    generator = torch.Generator().manual_seed(0)
    side = SIDES.get(kind, 16)
    return [torch.rand(number, 3, side, side, generator=generator) for number in (1, 2)]


def inputs_of(model, prompt, pixels):
    """Return the inputs of one prompt with its images."""
    ids = torch.tensor([prompt])
    nested = model.config.model_type in ("smolvlm", "idefics3")
    found = {"input_ids": ids, "pixel_values": pixels[None] if nested else pixels}
    if model.config.model_type == "paligemma":
        found["token_type_ids"] = torch.zeros_like(ids)  # a prefix
    return {**found, "attention_mask": torch.ones_like(ids)}


def expected(model, images):
    found = []
    for prompt, pixels in zip(PROMPTS, images, strict=True):
        with torch.no_grad():
            out = model.generate(
                **inputs_of(model, prompt, pixels), max_new_tokens=STEPS, do_sample=False, eos_token_id=None,
                pad_token_id=END,
            )  # fmt: skip
        found.append(out[0, len(prompt) :].tolist())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_logits_with_images_are_those_of_the_model(kind, tmp_path):
    """Of a prompt in a batch, with padding before it and behind it, and of the token after it."""
    model, images, padding = save(tmp_path, kind, 0), pixels_of(kind), torch.tensor([2, 0])
    rows = [[0] * int(pad) + prompt for pad, prompt in zip(padding, PROMPTS, strict=True)]
    tokens, more = torch.tensor(rows), torch.tensor([[21], [22]])
    length = tokens.shape[1]
    with torch.no_grad():
        complete = [
            model(**inputs_of(model, [*prompt, *([] if kind == "paligemma" else [int(token)])], pixels)).logits[0]
            for prompt, pixels, token in zip(PROMPTS, images, more, strict=True)
        ]
        embedded = torch.zeros(2, length, 32)
        for row, pixels in enumerate(images):
            embedded[row, tokens[row] == IMAGE] = ImageEncoder(model)(pixels).flatten(0, 1)
        decoder = Decoder(model, 2, 24).eval()
        filled, images_filled = (
            torch.nn.functional.pad(each, pad) for each, pad in ((tokens, (0, 2)), (embedded, (0, 0, 0, 2)))
        )
        prefilled = decoder(filled, torch.tensor(0), padding, torch.tensor(length - 1), images=images_filled)
        decoded = decoder(more, torch.tensor(length), padding)
    at = -1 if kind == "paligemma" else -2
    torch.testing.assert_close(prefilled, torch.stack([logits[at] for logits in complete]), rtol=1e-4, atol=1e-4)
    if kind != "paligemma":  # whose later tokens are no prefix
        torch.testing.assert_close(decoded, torch.stack([logits[-1] for logits in complete]), rtol=1e-4, atol=1e-4)


@pytest.mark.slow_rows(unless="smolvlm-jit")
@pytest.mark.parametrize(
    "engine, output_type", [("jit", "linalg-on-tensors"), ("iree", "linalg-on-tensors"), ("xla", "stablehlo")]
)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_generate(kind, engine, output_type, tmp_path):
    """One image, and two, in prompts of two lengths."""
    if not is_installed(ENGINES.get(engine, "torch")):
        pytest.skip(f"the extra '{engine}' is not installed")
    images = pixels_of(kind)
    seeds = (expected(save(tmp_path / "model", kind, seed), images) for seed in range(8))
    tokens = next(each for each in seeds if all(len(set(row)) >= 6 for row in each))
    out = import_model(tmp_path / "model", tmp_path / "out", batch=3, context=48, output_type=output_type)
    model = load(out, engine=engine)
    assert isinstance(model, ImageModel)
    found = list(zip(*model.tokens(PROMPTS, STEPS, images=images), strict=True))
    assert [list(each) for each in found] == tokens
    for wrong, message in (
        ((), "prompt 0 has 4 image tokens, and its images 0 embeddings"),
        (images[:1], "images for 1 of 2 prompts"),
        (images[::-1], "prompt 0 has 4 image tokens, and its images 8 embeddings"),
    ):
        with pytest.raises(UsageError, match=message):
            next(iter(model.tokens(PROMPTS, STEPS, images=wrong)))
    assert len(model.generate("Hello", max_new_tokens=3)[0].tokens) == 3
    assert model.encode_image(images[1]).shape == (2, TOKENS, 32)
    with pytest.raises(UsageError, match="for which the cache has to be static"):
        import_model(tmp_path / "model", tmp_path / "paged", cache="paged", context=48)

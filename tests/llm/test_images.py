"""Models that take images: tokens are those of ``generate`` with the image."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from fx_importer import UsageError
from fx_importer.llm import ImageModel, import_model, load
from fx_importer.process.optional_packages import is_installed
from tests.llm.test_architectures import ENGINES
from tests.llm.tiny_models import END, VOCABULARY, tokenizer

IMAGE, TOKENS = 255, 4
PROMPTS = [[5, 6, *[IMAGE] * TOKENS, 7, 8, 9], [11, *[IMAGE] * TOKENS, 12, *[IMAGE] * TOKENS, 13]]
STEPS = 16


def save(folder, kind, seed):
    torch.manual_seed(seed)
    common = {"intermediate_size": 64, "num_attention_heads": 4}
    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": VOCABULARY}
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "image_size": 16, "patch_size": 4}
    config = AutoConfig.for_model(
        kind,
        image_token_id=IMAGE,
        scale_factor=2,
        pad_token_id=END,
        text_config={"model_type": "llama", **common, **text, "max_position_embeddings": 128, "eos_token_id": END},
        vision_config={**common, **vision},
    )
    model = AutoModelForImageTextToText.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model


def expected(model, images):
    found = []
    for prompt, pixels in zip(PROMPTS, images, strict=True):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            out = model.generate(
                input_ids=ids, pixel_values=pixels[None], attention_mask=torch.ones_like(ids), max_new_tokens=STEPS,
                do_sample=False, eos_token_id=None, pad_token_id=END,
            )  # fmt: skip
        found.append(out[0, len(prompt) :].tolist())
    return found


@pytest.mark.slow_rows("idefics3-jit", "iree", "xla")
@pytest.mark.parametrize(
    "engine, output_type", [("jit", "linalg-on-tensors"), ("iree", "linalg-on-tensors"), ("xla", "stablehlo")]
)
@pytest.mark.parametrize("kind", ["smolvlm", "idefics3"])
def test_greedy_tokens_are_those_of_generate(kind, engine, output_type, tmp_path):
    """One image, and two, in prompts of two lengths."""
    if not is_installed(ENGINES.get(engine, "torch")):
        pytest.skip(f"the extra '{engine}' is not installed")
    images = [torch.rand(number, 3, 16, 16) for number in (1, 2)]
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

"""Language models in GGUF files."""

import json
import math
import re
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from fx_importer import Manifest, UsageError, lower
from fx_importer.llm import import_model, load
from fx_importer.llm.checkpoints.gguf_blocks import FORMATS, BlockEmbedding, BlockLinear
from fx_importer.llm.checkpoints.gguf_config import read_config
from fx_importer.llm.checkpoints.gguf_model import load_gguf
from fx_importer.process.optional_packages import is_installed
from fx_importer.weights import stored_in
from tests.llm.gguf_files import random_blocks, save_tiny_gguf
from tests.llm.test_architectures import expected

PROMPT = [7, 99, 31, 250, 4]
BLOCKS = [kind for kind in FORMATS if kind not in ("F16", "BF16", "F32")]
MIXED = {"attn_v": "Q4_K", "attn": "Q4_0", "ffn_down": "Q6_K", "ffn": "Q8_0", "output": "F16"}


def mixed(name: str) -> str:
    """Return a type for each kind of matrix; of those that most files have, the slow ones for one matrix."""
    return next((kind for part, kind in MIXED.items() if part in name), "Q8_0")


def same_bits(one: torch.Tensor, other: np.ndarray) -> bool:
    return np.array_equal(one.numpy().view(np.int32), np.ascontiguousarray(other, np.float32).view(np.int32))


@pytest.mark.parametrize("kind", BLOCKS)
def test_unpacked_weights_have_the_bits_of_gguf(kind):
    """Any bytes are weights. Products are those of the unpacked weight, with few rows and with many."""
    blocks = random_blocks(kind, 24, 512, seed=1)
    packed, exact = torch.from_numpy(blocks), gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind])
    assert same_bits(FORMATS[kind].unpacked(packed), exact)
    tokens = torch.tensor([[3, 0, 23]])
    assert same_bits(BlockEmbedding(packed, kind, torch.float32, None)(tokens)[0], exact[tokens[0]])
    for rows in (1, 9):
        x = torch.randn(1, rows, 512, generator=torch.Generator().manual_seed(0))
        expected_product = torch.nn.functional.linear(x, torch.from_numpy(exact))
        torch.testing.assert_close(BlockLinear(packed, kind, None)(x), expected_product, rtol=1e-4, atol=1e-4)


class Unpacked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = {kind: torch.from_numpy(random_blocks(kind, 8, 256, seed=2)) for kind in BLOCKS}

    def forward(self, blocks):
        return {kind: FORMATS[kind].unpacked(each) for kind, each in blocks.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine, output_type", [("jit", "linalg-on-tensors"), ("iree", "linalg-on-tensors"), ("xla", "stablehlo")]
)
def test_compiled_weights_have_the_bits_of_gguf(engine, output_type):
    if engine != "jit" and not is_installed({"iree": "iree.compiler", "xla": "jax"}[engine]):
        pytest.skip(f"the extra '{engine}' is not installed")
    model = Unpacked()
    found = lower(model, model.blocks, output_type=output_type).caller(backend=engine)(model.blocks)
    for kind, blocks in model.blocks.items():
        assert same_bits(found[kind], gguf.dequantize(blocks.numpy(), gguf.GGMLQuantizationType[kind]))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return the file of a Llama, and the model."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return path, save_tiny_gguf(path, kind_of=mixed, num_hidden_layers=1)


@pytest.mark.slow
def test_tokens_are_those_of_the_unpacked_model(tiny, tmp_path):
    """Rows of q and k are permuted in the file; the module reads the file's own blocks."""
    path, model = tiny
    out = import_model(path, tmp_path / "out", context=24)
    imported = load(out)
    tokens = expected(model, [PROMPT], 12)
    assert len(set(tokens[0])) >= 6
    assert [[each[0] for each in imported.tokens([PROMPT], 12)]] == tokens
    assert 257 in imported.tokenizer("the end")["input_ids"]  # the token of two bytes
    assert imported.tokenizer.decode(imported.tokenizer("the end")["input_ids"]) == "the end"
    assert json.loads((out / "llm.json").read_text())["weights"] == [str(path)]
    assert not (out / "weights.safetensors").exists()
    weights = Manifest.from_json((out / "model.manifest.json").read_text()).weights_by_name
    assert weights.keys() == stored_in(path).keys()
    in_module = sum(math.prod(w.type.sizes) * getattr(torch, w.type.dtype).itemsize for w in weights.values())
    assert in_module == sum(each.nbytes for each in stored_in(path).values())


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3": {},
    "gemma2": {"sliding_window": 8, "query_pre_attn_scalar": 64, "tie_word_embeddings": True},
    "gpt2": {"tie_word_embeddings": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["F32", "F16", "Q5_0"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_other_architectures(architecture, kind, tmp_path):
    """Biases, norms whose weights llama.cpp stores plus one, shared embeddings, transposed matrices."""
    model = save_tiny_gguf(tmp_path / "m.gguf", architecture, lambda name: kind, **ARCHITECTURES[architecture])
    if kind == "F16":
        model = model.half()
    out = import_model(tmp_path / "m.gguf", tmp_path / "out", context=24)
    imported = load(out)
    tokens = [each[0] for each in imported.tokens([PROMPT], 12)]
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + tokens])).logits[0, len(PROMPT) - 1 : -1].float()
    behind = logits.amax(1) - logits[range(12), tokens]  # of random weights, the best two may be units of float16 apart
    assert float(behind.max()) <= (2**-6 if kind == "F16" else 0)
    (score,) = imported.score("Once upon a time")
    ids = torch.tensor([score.tokens])
    with torch.no_grad():
        assert score.perplexity == pytest.approx(float(model(ids, labels=ids).loss.exp()), rel=1e-2)
    size = sum((out / name).stat().st_size for name in ("weights.safetensors",) if (out / name).exists())
    assert size < 0.1 * (tmp_path / "m.gguf").stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("engine, output_type", [("iree", "linalg-on-tensors"), ("xla", "stablehlo")])
def test_other_engines(engine, output_type, tiny, tmp_path):
    path, model = tiny
    if not is_installed({"iree": "iree.compiler", "xla": "jax"}[engine]):
        pytest.skip(f"the extra '{engine}' is not installed")
    out = import_model(path, tmp_path / "out", context=24, output_type=output_type)
    found = load(out, engine=engine).tokens([PROMPT], 12)
    assert [[each[0] for each in found]] == expected(model, [PROMPT], 12)


def test_factors_of_rotary_positions_divide_frequencies(tmp_path):
    """Llama 3's, which llama.cpp writes as a tensor."""
    plain = save_tiny_gguf(tmp_path / "a.gguf", kind_of=mixed, num_hidden_layers=1)
    factors = np.linspace(1, 8, 32, dtype=np.float32)
    save_tiny_gguf(tmp_path / "b.gguf", kind_of=mixed, num_hidden_layers=1, others={"rope_freqs.weight": factors})
    model = load_gguf(tmp_path / "b.gguf", read_config(tmp_path / "b.gguf"), None).model
    frequencies = plain.model.rotary_emb.inv_freq
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, frequencies / torch.from_numpy(factors))


def test_what_is_not_handled_is_said(tiny, tmp_path):
    path = tmp_path / "m.gguf"

    def check(message: str, **arguments):
        with pytest.raises(UsageError, match=re.escape(message)):
            import_model(path, tmp_path / "out", **arguments)

    path.write_bytes(tiny[0].read_bytes()[:5000])
    check("is not a complete GGUF file")
    path.write_bytes(b"GGML" + bytes(100))
    check("it does not start with 'GGUF'")
    path.write_bytes(tiny[0].read_bytes())
    check("stay as they are: quantize and lora need a model that is not quantized", quantize="int8")
    few: dict[str, Any] = {"num_hidden_layers": 1}
    save_tiny_gguf(path, kind_of=lambda name: "Q2_K", **few)
    check("'token_embd.weight' is of the type Q2_K; accepted are Q4_0, ")
    save_tiny_gguf(path, kind_of=mixed, entries={"llama.attention.scale": 0.5}, **few)
    check("has the entry 'llama.attention.scale', 0.5, which fx_importer.llm does not handle")
    save_tiny_gguf(path, kind_of=mixed, others={"blk.0.attn_q.bias": np.zeros(256, np.float32)}, **few)
    check("the model has no weight for 'blk.0.attn_q.bias'")
    assert not (tmp_path / "out").exists()

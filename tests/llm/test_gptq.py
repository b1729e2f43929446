"""Models quantized by GPTQ and AWQ."""

import json
import re
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fx_importer import UsageError
from fx_importer.llm import import_model, load
from fx_importer.llm.checkpoints.gptq import WordFormat, _layer, _shape
from fx_importer.llm.checkpoints.model_folder import read_source
from tests.llm.test_architectures import expected
from tests.llm.test_lora import save_adapter
from tests.llm.tiny_models import save_tiny_model

GROUP = 32
FORMATS: dict[str, dict[str, Any]] = {
    "gptq": {"quant_method": "gptq", "bits": 4},
    "gptq in 8 bits": {"quant_method": "gptq", "bits": 8},
    "gptq, second version": {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"},
    "gptq by activations": {"quant_method": "gptq", "bits": 4, "desc_act": True},
    "awq": {"quant_method": "awq", "bits": 4, "version": "gemm"},
}


def packed(config: dict[str, Any], rows: int, columns: int, seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return random tensors of a layer, and its weight, [N, K], written out value by value."""
    generator = torch.Generator().manual_seed(seed)
    bits, groups = config["bits"], columns // GROUP
    values = 32 // bits

    def words(*sizes: int) -> torch.Tensor:
        return torch.randint(-(2**31), 2**31, sizes, generator=generator, dtype=torch.int64).to(torch.int32)

    scales = (0.3 / 2**bits * torch.randn(groups, rows, generator=generator)).half()
    awq = config["quant_method"] == "awq"
    tensors = {
        "qweight": words(columns, rows // values) if awq else words(columns // values, rows),
        "qzeros": words(groups, rows // values),
        "scales": scales,
    }
    group_of = torch.arange(columns) // GROUP
    if config.get("desc_act"):
        group_of = group_of[torch.randperm(columns, generator=generator)]
    if not awq:
        tensors["g_idx"] = group_of.to(torch.int32)

    def value(word: int, place: int) -> int:
        return (word >> bits * place) % 2**bits

    columns_of_awq = [0, 2, 4, 6, 1, 3, 5, 7]  # of the four bits of a word, from the lowest
    weight = torch.empty(rows, columns)
    quantized, zeros = tensors["qweight"].tolist(), tensors["qzeros"].tolist()
    for n in range(rows):
        place = columns_of_awq.index(n % 8) if awq else n % values
        for k in range(columns):
            group = int(group_of[k])
            zero = value(zeros[group][n // values], place)
            if not awq and "checkpoint_format" not in config:
                zero = (zero + 1) % 2**bits
            q = value(quantized[k][n // 8], place) if awq else value(quantized[k // values][n], k % values)
            weight[n, k] = float(scales[group, n]) * (q - zero)
    return tensors, weight


@pytest.mark.parametrize("name", FORMATS)
def test_weights_are_those_written_out(name):
    """The unpacked weight bit by bit, and products with few rows and with many."""
    tensors, weight = packed(FORMATS[name], 24, 128, 0)
    layer = _layer("a", {"g_idx": None, **tensors}, None, WordFormat.of_config(FORMATS[name]))
    assert (layer.order is not None) == ("activations" in name)
    assert torch.equal(layer(torch.eye(128)).t(), weight)
    for rows in (1, 9):
        x = torch.randn(2, rows, 128, generator=torch.Generator().manual_seed(1))[:1]
        torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, weight), rtol=1e-4, atol=1e-5)


def save_quantized(folder, config: dict[str, Any], **changes: Any) -> Any:
    """Write a tiny model with quantized layers to ``folder``, and return it with these weights."""
    model = save_tiny_model(folder, "qwen2", hidden_size=64, intermediate_size=128, **changes)
    state = {name: each.contiguous() for name, each in model.state_dict().items()}
    for number, (path, module) in enumerate(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and path != "lm_head":
            tensors, weight = packed(config, module.out_features, module.in_features, number)
            with torch.no_grad():
                module.weight.copy_(weight)
            del state[f"{path}.weight"]
            state |= {f"{path}.{part}": each for part, each in tensors.items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    described = json.loads((folder / "config.json").read_text()) | {"quantization_config": config}
    (folder / "config.json").write_text(json.dumps(described))
    return model


@pytest.mark.parametrize("name", FORMATS)
def test_logits_are_those_of_the_unpacked_model(name, tmp_path):
    model, ids = save_quantized(tmp_path, FORMATS[name], num_hidden_layers=1), torch.tensor([[12, 200, 45, 3, 77]])
    with torch.no_grad():
        found, expected_logits = (each(ids).logits for each in (read_source(tmp_path).load(None).model, model))
    torch.testing.assert_close(found, expected_logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_tokens_are_those_of_the_unpacked_model(name, tmp_path):
    """The module reads the words in the user's file, unless rows are ordered by activations."""
    model = save_quantized(tmp_path / "model", FORMATS[name], num_hidden_layers=1)
    out = import_model(tmp_path / "model", tmp_path / "out", context=24)
    prompt = [12, 200, 45, 3, 77]
    tokens = expected(model, [prompt], 12)
    assert len(set(tokens[0])) >= 6
    assert [[each[0] for each in load(out).tokens([prompt], 12)]] == tokens
    assert (out / "weights.safetensors").exists() == ("activations" in name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gptq by activations", "awq"])
def test_an_adapter_as_an_argument(name, tmp_path):
    """The tokens are those of the unpacked model with the adapter in its weight."""
    model = save_quantized(tmp_path / "model", FORMATS[name], num_hidden_layers=1)
    path, prompt = "model.layers.0.mlp.down_proj", [7, 99, 31, 250, 4]
    out = import_model(tmp_path / "model", tmp_path / "out", context=24, adapter_rank=4)
    plain = expected(model, [prompt], 12)
    first, second = save_adapter(tmp_path / "adapter", {path: (64, 128, 4)})[path]
    with torch.no_grad():
        model.get_submodule(path).weight += second @ first * 1.5
    adapted = expected(model, [prompt], 12)
    assert plain != adapted
    imported = load(out)
    for folder, wanted in ((None, plain), (tmp_path / "adapter", adapted), (None, plain)):
        imported.use_adapter(folder)
        assert [[each[0] for each in imported.tokens([prompt], 12)]] == wanted


def test_what_is_not_handled_is_said(tmp_path):
    save_quantized(tmp_path, FORMATS["awq"], num_hidden_layers=1)
    for changed, message in [
        ({"quant_method": "bitsandbytes"}, "quantized by 'bitsandbytes' with bits=4"),
        ({"bits": 3, "quant_method": "gptq"}, "accepted are gptq in 2, 4 or 8 bits"),
        ({"version": "gemv"}, "awq in 4 bits with zero points of the version gemm"),
        ({"quant_method": "gptq", "version": ""}, "that are not those of 4 bits in groups: torch.int32 [128, 8]"),
    ]:
        source = read_source(tmp_path)
        source.config.quantization_config = FORMATS["awq"] | changed
        with pytest.raises(UsageError, match=re.escape(message)):
            source.load(None)
    with pytest.raises(UsageError, match="quantize and lora need a model that is not quantized"):
        import_model(tmp_path, tmp_path / "out", quantize="int8")


@pytest.mark.parametrize("method, bits", [("gptq", 4), ("awq", 4), ("gptq", 8)])
def test_group_size_is_that_of_the_tensors(method, bits):
    """Of 64 values along K in groups of 32; a group may be larger than K."""
    values, columns = 32 // bits, 64
    words = (columns // values, 32) if method == "gptq" else (columns, 32 // values)

    def shape(size, groups):
        layout = WordFormat.of_config({"quant_method": method, "bits": bits, "group_size": size})
        parts = {
            "qweight": torch.zeros(words, dtype=torch.int32),
            "qzeros": torch.zeros(groups, 32 // values, dtype=torch.int32),
            "scales": torch.ones(groups, 32),
            "g_idx": None,
        }
        return _shape("layer", parts, layout)

    assert shape(32, 2) == shape(-1, 1) == shape(128, 1) == (32, 64)
    for size, groups in [(16, 2), (-1, 2), (128, 2), (64, 2)]:
        with pytest.raises(UsageError, match=f"'layer' has 2 groups of 32 values, .* states group_size={size}"):
            shape(size, groups)
    with pytest.raises(UsageError, match="group_size='x': accepted are 1 or more, and -1"):
        shape("x", 2)


def test_groups_of_other_sizes_are_an_error():
    tensors, _ = packed(FORMATS["gptq"], 24, 128, 0)
    tensors["g_idx"][0] = 3
    with pytest.raises(UsageError, match="groups of different sizes"):
        _layer("a", tensors, None, WordFormat.of_config(FORMATS["gptq"]))

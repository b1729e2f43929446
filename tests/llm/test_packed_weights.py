"""Weights of language models in 8 and 4 bits."""

import copy
import math
import re
from typing import Any

import pytest
import torch

from fx_importer import UsageError
from fx_importer.diagnostics.observers import Observer, observing
from fx_importer.llm import import_model, load
from fx_importer.llm.checkpoints.packed_weights import Int4Linear, Int8Linear, pack_int4, pack_int8
from fx_importer.llm.checkpoints.quantize import quantize
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations
from fx_importer.process.optional_packages import is_installed
from fx_importer.rewrites.llvm.entry_point import entry_point
from fx_importer.rewrites.llvm.library_binding import bind_library
from fx_importer.weights import stored_in
from tests.llm.test_architectures import expected
from tests.llm.tiny_models import save_tiny_model


@pytest.mark.parametrize("rows", [2, 9])
@pytest.mark.parametrize("lanes", [1, 32])
@pytest.mark.parametrize("layer, pack, error", [(Int8Linear, pack_int8, 0.01), (Int4Linear, pack_int4, 0.11)])
def test_products_are_near_those_of_the_weight(layer, pack, error, lanes, rows):
    """With few rows and with many; a group of zeros, and a weight with a row that is small."""
    torch.manual_seed(0)
    weight, x = torch.randn(48, 128), torch.randn(1, rows, 128)
    weight[3, :32], weight[5] = 0, weight[5] * 1e-3
    packed, scale = pack(weight)
    found = layer(packed, scale, None, lanes)(x)
    exact = torch.nn.functional.linear(x, weight)
    assert (found - exact).norm() < error * exact.norm()
    unpacked = layer(packed, scale, None, lanes)(torch.eye(128)).t()
    torch.testing.assert_close(found, torch.nn.functional.linear(x, unpacked))
    assert (unpacked[3, :32] == 0).all()
    assert (unpacked[5] - weight[5]).abs().max() < 1e-3 * error * 4


@pytest.mark.parametrize("tied", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["int4", pytest.param("int8", marks=pytest.mark.slow)])
def test_tokens_are_those_of_the_quantized_model(name, tied, tmp_path):
    """The file holds what is packed, once, and a step has no memory for a weight that is not."""
    largest: dict[str, int] = {}

    class Allocations(Observer):
        def before_pass(self, name, module):
            if name == bind_library.name:
                types = [ir.MemRefType(op.results[0].type) for op in operations(module, ("memref.alloc",))]
                called = entry_point(module).name.value
                largest[called] = max(math.prod(each.shape) for each in types if each.has_static_shape)

    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1}
    model = save_tiny_model(tmp_path / "model", **sizes, tie_word_embeddings=tied)
    with observing(Allocations()):
        imported = load(import_model(tmp_path / "model", tmp_path / "out", context=24, quantize=name))
    quantized = copy.deepcopy(model)
    quantize(quantized, name)
    prompt = [7, 99, 31, 250, 4]
    with observing(Allocations()):
        tokens = imported.tokens([prompt], 12)
    assert [[each[0] for each in tokens]] == expected(quantized, [prompt], 12)
    assert len({id(each) for each in quantized.parameters()}) == len(list(quantized.parameters()))
    packed = sum(each.numel() * each.itemsize for each in quantized.parameters())
    assert (tmp_path / "out" / "weights.safetensors").stat().st_size <= packed + 8192  # and names
    assert largest["decode"] < model.model.layers[0].mlp.up_proj.weight.numel() / 4
    ids = torch.tensor([imported.tokenizer("Once upon a time")["input_ids"]])
    with torch.no_grad():
        perplexity = float(quantized(ids, labels=ids).loss.exp())
    assert imported.score("Once upon a time")[0].perplexity == pytest.approx(perplexity, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "gemma3_text", "olmo", "phi3"])
def test_other_layers(kind, tmp_path):
    """Convolutions of one, embeddings with a factor, norms without weights, layers of several outputs."""
    wider = {"n_embd": 64} if kind == "gpt2" else {"hidden_size": 64}
    model = save_tiny_model(tmp_path / "model", kind, **wider)
    imported = load(import_model(tmp_path / "model", tmp_path / "out", context=24, quantize="int4"))
    quantize(model, "int4")
    prompt = [7, 99, 31, 250, 4]
    assert [[each[0] for each in imported.tokens([prompt], 12)]] == expected(model, [prompt], 12)
    assert {each.type.dtype for each in stored_in(tmp_path / "out" / "weights.safetensors").values() if each.type} >= {
        "int8",
        "uint8",
    }


def test_what_cannot_be_quantized_is_said(tmp_path):
    save_tiny_model(tmp_path / "mixture", "mixtral")
    with pytest.raises(UsageError, match=r"Mixtral.* has weights that are not those of linear layers.*experts"):
        import_model(tmp_path / "mixture", tmp_path / "out", quantize="int8")
    with pytest.raises(UsageError, match=re.escape("weights in 'int2': accepted are int8, int4")):
        import_model(tmp_path / "mixture", tmp_path / "out", quantize="int2")
    model = save_tiny_model(tmp_path / "model")
    with pytest.raises(UsageError, match="quantize=8: accepted are int8, int4, and configurations of torchao"):
        import_model(tmp_path / "model", tmp_path / "out", quantize=8)
    with pytest.raises(UsageError, match="the engine 'gpu': accepted are jit, iree, xla"):
        import_model(tmp_path / "model", tmp_path / "out", engine="gpu")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] = torch.inf
    with pytest.raises(UsageError, match=r"the weight 'model.layers.0.mlp.up_proj.weight' has values"):
        quantize(model, "int8")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize(
    "engine, package, output_type", [("iree", "iree.compiler", "linalg-on-tensors"), ("xla", "jax", "stablehlo")]
)
def test_sums_for_other_engines(engine, package, output_type, name, tmp_path):
    """Of lanes; the JIT runs the module too."""
    if not is_installed(package):
        pytest.skip(f"the extra '{engine}' is not installed")
    model = save_tiny_model(tmp_path / "model", hidden_size=64, intermediate_size=128)
    options = {"quantize": name, "engine": engine, "output_type": output_type}
    out = import_model(tmp_path / "model", tmp_path / "out", context=24, **options)
    quantize(model, name, engine=engine)
    tokens = expected(model, [[7, 99, 31, 250, 4]], 12)
    for runs in (engine, "jit"):
        assert [[each[0] for each in load(out, engine=runs).tokens([[7, 99, 31, 250, 4]], 12)]] == tokens


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_torchao_quantizes_linear_layers(tmp_path):
    """By a configuration of its ``quantize_``."""
    quantization = pytest.importorskip("torchao.quantization")
    model = save_tiny_model(tmp_path / "model", num_hidden_layers=1)
    config = quantization.Int8WeightOnlyConfig()
    imported = load(import_model(tmp_path / "model", tmp_path / "out", context=24, quantize=config))
    quantization.quantize_(model, config)
    prompt = [7, 99, 31, 250, 4]
    assert [[each[0] for each in imported.tokens([prompt], 12)]] == expected(model, [prompt], 12)
    kinds = [each.type.dtype for each in stored_in(tmp_path / "out" / "weights.safetensors").values() if each.type]
    assert kinds.count("int8") == 8

"""Adapters of peft, merged at import."""

import json
import re

import pytest
import torch
from safetensors.torch import save_file

from fx_importer import UsageError
from fx_importer.llm import import_model, load
from fx_importer.llm.checkpoints.lora import merge
from fx_importer.llm.checkpoints.lora_arguments import AdapterArguments, matrices_for
from tests.llm.test_architectures import expected
from tests.llm.tiny_models import save_tiny_model


def save_adapter(folder, shapes, **options):
    """Write an adapter with random matrices A [r, K] and B [N, r] for each of ``shapes``, and return these."""
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": [*shapes], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config | options))
    generator = torch.Generator().manual_seed(1)
    pairs = {
        path: (torch.randn(rank, columns, generator=generator), torch.randn(rows, rank, generator=generator))
        for path, (rows, columns, rank) in shapes.items()
    }
    names = {
        f"base_model.model.{path}.lora_{side}{'' if 'embedding' in side else '.weight'}": each
        for path, pair in pairs.items()
        for side, each in zip(_sides(path), pair, strict=True)
    }
    save_file(names, folder / "adapter_model.safetensors")
    return pairs


def _sides(path):
    return ("embedding_A", "embedding_B") if path.endswith(("embed_tokens", "wte")) else ("A", "B")


@pytest.mark.slow
def test_tokens_are_those_of_the_merged_model(tmp_path):
    """A linear layer with its own rank and alpha, another, and the embeddings."""
    model = save_tiny_model(tmp_path / "model")
    down, query = "model.layers.1.mlp.down_proj", "model.layers.0.self_attn.q_proj"
    shapes = {query: (32, 32, 4), down: (32, 64, 2), "model.embed_tokens": (32, 257, 4)}
    patterns = {"rank_pattern": {"down_proj": 2}, "alpha_pattern": {"layers.1.mlp.down_proj": 3}}
    pairs = save_adapter(tmp_path / "adapter", shapes, use_rslora=True, **patterns)
    prompt = [7, 99, 31, 250]
    before = expected(model, [prompt], 12)
    with torch.no_grad():
        model.get_submodule(query).weight += pairs[query][1] @ pairs[query][0] * 3  # 6 / √4
        model.get_submodule(down).weight += pairs[down][1] @ pairs[down][0] * (3 / 2**0.5)
        model.model.embed_tokens.weight += (pairs["model.embed_tokens"][1] @ pairs["model.embed_tokens"][0] * 3).T
    imported = load(import_model(tmp_path / "model", tmp_path / "out", context=24, lora=tmp_path / "adapter"))
    assert [[each[0] for each in imported.tokens([prompt], 12)]] == expected(model, [prompt], 12) != before


def test_scales_are_of_each_module(tmp_path):
    model = save_tiny_model(tmp_path / "model")
    down, query = "model.layers.1.mlp.down_proj", "model.layers.0.self_attn.q_proj"
    options = {"use_rslora": True, "rank_pattern": {"down_proj": 2}, "alpha_pattern": {"layers.1.mlp.down_proj": 3}}
    pairs = save_adapter(tmp_path / "adapter", {query: (32, 32, 4), down: (32, 64, 2)}, **options)
    factors = {query: 6 / 4**0.5, down: 3 / 2**0.5}
    added = {name: second @ first * factors[name] for name, (first, second) in pairs.items()}
    wanted = {name: model.get_submodule(name).weight + each for name, each in added.items()}
    merge(model, tmp_path / "adapter")
    for name, each in wanted.items():
        torch.testing.assert_close(model.get_submodule(name).weight, each)


def test_a_transposed_layer_gets_the_transposed_product(tmp_path):
    model = save_tiny_model(tmp_path / "model", "gpt2")
    path = "transformer.h.0.attn.c_attn"
    ((first, second),) = save_adapter(tmp_path / "adapter", {path: (96, 32, 4)}, fan_in_fan_out=True).values()
    wanted = model.get_submodule(path).weight + (second @ first).T * 1.5
    merge(model, tmp_path / "adapter")
    torch.testing.assert_close(model.get_submodule(path).weight, wanted)


@pytest.mark.parametrize(
    "shape, options, message",
    [
        (("lm_head", 257, 32, 4), {"peft_type": "IA3"}, "of the type 'IA3': accepted is 'LORA'"),
        (("lm_head", 257, 32, 4), {"use_dora": True}, "not merged here: use_dora=True; merge it with peft"),
        (("lm_head", 257, 32, 4), {"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        (("lm_head", 257, 32, 4), {"bias": "all"}, "bias='all'"),
        (("lm_head", 257, 32, 2), {}, "matrices of rank 2 for 'lm_head', and says 4"),
        (("lm_head", 257, 64, 4), {}, "adds (257, 64) to the weight of 'lm_head', which is (257, 32)"),
        (("model.layers.9.mlp.up_proj", 64, 32, 4), {}, "'model.layers.9.mlp.up_proj' of LlamaForCausalLM, which it"),
        (("model.norm", 64, 32, 4), {}, "'model.norm' of LlamaForCausalLM, which is a LlamaRMSNorm"),
    ],
)
def test_other_adapters_are_said(tmp_path, shape, options, message):
    model = save_tiny_model(tmp_path / "model")
    save_adapter(tmp_path / "adapter", {shape[0]: shape[1:]}, **options)
    with pytest.raises(UsageError, match=re.escape(message)):
        merge(model, tmp_path / "adapter")


QUERY = "model.layers.{}.self_attn.q_proj"


@pytest.mark.parametrize(
    "targets, message",
    [
        ({"target_modules": ["q_proj"]}, f"lacks the matrices of '{QUERY.format(1)}', which the target_modules in"),
        ({"target_modules": r".*\.q_proj"}, f"lacks the matrices of '{QUERY.format(1)}'"),
        ({"target_modules": "all-linear"}, "lacks the matrices of 'model.layers.0.self_attn.k_proj', "),
        ({"target_modules": ["k_proj"], "layers_to_transform": []}, f"has matrices of '{QUERY.format(0)}', which"),
        ({"target_modules": 3}, "does not say target_modules: TypeError"),
        ({"target_modules": ["q_proj"], "layers_to_transform": [0]}, None),
        ({"target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"}, None),
        ({"target_modules": ["q_proj"], "exclude_modules": ["layers.1.self_attn.q_proj"]}, None),
        ({"target_modules": None}, None),
    ],
)
def test_matrices_are_those_of_the_target_modules(tmp_path, targets, message):
    """At import, and where the module takes adapters as arguments."""
    model = save_tiny_model(tmp_path / "model")
    save_adapter(tmp_path / "adapter", {QUERY.format(0): (32, 32, 4)}, **targets)
    form = AdapterArguments(model, 4, ["q_proj", "k_proj"]).form
    for read in (lambda: matrices_for(form, tmp_path / "adapter"), lambda: merge(model, tmp_path / "adapter")):
        if message is None:
            read()
        else:
            with pytest.raises(UsageError, match=re.escape(message)):
                read()


def test_shared_weights_and_missing_files_are_said(tmp_path):
    model = save_tiny_model(tmp_path / "model", tie_word_embeddings=True)
    save_adapter(tmp_path / "adapter", {"lm_head": (257, 32, 4)})
    with pytest.raises(UsageError, match=r"shares: model\.embed_tokens\.weight, lm_head\.weight"):
        merge(model, tmp_path / "adapter")
    save_file({"base_model.model.lm_head.weight": torch.ones(257, 32)}, tmp_path / "adapter/adapter_model.safetensors")
    with pytest.raises(UsageError, match="replaces the weight of 'lm_head'"):
        merge(model, tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(UsageError, match="holds no adapter_model.safetensors"):
        merge(model, tmp_path / "adapter")
    with pytest.raises(UsageError, match=r"holds no adapter of peft \(adapter_config.json\)"):
        merge(model, tmp_path / "model")

"""Small models of real architectures: to every output type, and on the JIT against eager, static and dynamic."""

import importlib.util
import inspect
from functools import cache

import pytest
import torch
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer import OutputType, lower
from testing.families import FAMILIES
from testing.zoo import ZOO

from .linalg_no_ops import linalg_no_ops
from .stablehlo_no_ops import stablehlo_no_ops

SMALL = [name for name, model in ZOO.items() if model.small]
DYNAMIC = [name for name in SMALL if ZOO[name].dynamic_shapes is not None]


@cache
def exported(name: str, dynamic: bool) -> ExportedProgram:
    model, args, kwargs = ZOO[name].build()
    shapes = ZOO[name].dynamic_shapes if dynamic else None
    return torch.export.export(model, args, kwargs, dynamic_shapes=shapes)


@pytest.mark.slow_rows(
    "(?<!bert_small)(?<!lstm)(?<!mamba_small)-(raw|torch)",
    "^swin_small-stablehlo$",
    "^mamba_small-raw$",
    "^llama_small-stablehlo$",
    "^resnet_small-stablehlo$",
    "^gpt2_small-stablehlo$",
    "^vit_small-stablehlo$",
    "^t5_encoder_tiny-stablehlo$",
    "^unet-stablehlo$",
    "^gru-stablehlo$",
    "^(mamba_small-torch|lstm-raw|lstm-torch)$",
)
@pytest.mark.parametrize(
    "output_type",
    [t for t in OutputType if t not in (OutputType.LINALG_ON_TENSORS, OutputType.TOSA)],
    ids=lambda t: t.value,
)
@pytest.mark.parametrize("name", SMALL)
def test_lowers(name, output_type):
    module = lower(exported(name, dynamic=False), output_type=output_type).module
    assert module.operation.verify()
    if output_type is OutputType.STABLEHLO:
        assert stablehlo_no_ops(module) == {}


@pytest.mark.slow_rows("^lstm$", "^bert_small$")
@pytest.mark.parametrize("name", ["bert_small", "resnet_small", "lstm"])
def test_dynamic_stablehlo_has_no_no_ops(name):
    assert stablehlo_no_ops(lower(exported(name, dynamic=True), output_type="stablehlo").module) == {}


@pytest.mark.slow_rows(
    "^(swin_small|lstm|gru|mamba_small|resnet_small|unet|t5_encoder_tiny|llama_small)$",
    "^(bert_small|convnext_small)$",  # in TOSA
    "^vit_small",
)
@pytest.mark.parametrize("name", SMALL)
def test_linalg_agrees_with_eager(name):
    model, args, kwargs = ZOO[name].build()
    lowered = lower(exported(name, dynamic=False), output_type="linalg")
    assert linalg_no_ops(lowered.module) == {}
    compare(lowered.run(*args, **kwargs), model, args, kwargs)


@pytest.mark.slow_rows(
    "(?<!bert_small)(?<!lstm)(?<!resnet_small)-narrow",
    "^gru-default$",
    "^unet-default$",
    "^swin_small-default$",
    "^lstm-narrow$",
    "^mamba_small-default$",
    "^bert_small-narrow$",
    "^resnet_small-default$",
    "^llama_small-default$",
    "^lstm-default$",
    "^resnet_small-narrow$",
    "^(gpt2_small|vit_small|whisper_encoder_small)-default$",  # in linalg
)
@pytest.mark.parametrize("narrow", [False, True], ids=["default", "narrow"])
@pytest.mark.parametrize("name", SMALL)
def test_tosa_is_valid_and_agrees_with_eager(name, narrow):
    lowered = lower(exported(name, dynamic=False), output_type="tosa", narrow_integers=narrow)
    text = lowered.module.operation.get_asm(use_local_scope=True, large_elements_limit=16)
    assert not (narrow and "i64>" in text.replace("array<i64", ""))
    if importlib.util.find_spec("tosa_reference_model") is not None:
        model, args, kwargs = ZOO[name].build()
        compare(lowered.run(*args, **kwargs), model, args, kwargs, 1e-5)


@pytest.mark.slow_rows(
    "mamba_small|unet|swin_small|gru|vit_small|t5_encoder_tiny|whisper_encoder_small",
    "^gpt2_small$",
    "^lstm$",
    "^llama_small$",
    "^convnext_small$",
    "^bert_small$",
)
@pytest.mark.parametrize("name", DYNAMIC)
def test_one_dynamic_module_agrees_with_eager_at_three_batch_sizes(name):
    model, args, kwargs = ZOO[name].build()
    lowered = lower(exported(name, dynamic=True), output_type="linalg")
    assert linalg_no_ops(lowered.module) == {}
    for size in (2, 3, 5):
        batch = [torch.cat([x] * 3)[:size] for x in args]
        compare(lowered.run(*batch, **kwargs), model, batch, kwargs)


FAMILIES_OF_A_BATCH = (
    "BeitForImageClassification",
    "CLIPModel",
    "DeiTForImageClassification",
    "Gemma2ForCausalLM",
    "MobileNetV2ForImageClassification",
    "RobertaForMaskedLM",
    "SegformerForSemanticSegmentation",
    "Swinv2ForImageClassification",
)
"""Models with fused projections, relative positions, masks and embeddings."""


@pytest.mark.slow_rows("^(?!BeitForImageClassification$)")
@pytest.mark.parametrize("name", FAMILIES_OF_A_BATCH)
def test_one_dynamic_tosa_module_agrees_with_eager_at_several_batch_sizes(name):
    pytest.importorskip("tosa_reference_model")
    with torch.no_grad():
        model, args, kwargs = FAMILIES[name].build()
        shapes = pytree.tree_map(lambda _: {0: Dim.AUTO}, batched(kwargs, 2))
        names = list(inspect.signature(model.forward).parameters)
        shapes |= {name: {0: Dim.AUTO} for name, _ in zip(names, args, strict=False)}
        program = torch.export.export(model, batched(args, 2), batched(kwargs, 2), dynamic_shapes=shapes)
    lowered = lower(program, output_type="tosa")
    for size in (1, 3):
        found, keywords = batched(args, size), batched(kwargs, size)
        compare(lowered.run(*found, **keywords), model, found, keywords, 2e-5)


def batched(inputs, size):
    """Return tensors with as many samples along their first axis."""
    return pytree.tree_map_only(torch.Tensor, lambda x: torch.cat([x] * size)[:size], inputs)


def compare(results, model, args, kwargs, tolerance=1e-4):
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*args, **kwargs))
    for result, wanted in zip(pytree.tree_leaves(results), expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance * float(wanted.abs().max()))

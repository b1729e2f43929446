"""Rules of attention, normalization and losses against eager."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from fx_importer import lower
from fx_importer.decompositions.nn import attention, losses, normalization
from fx_importer.decompositions.reduction import variance


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


HALVES = (torch.float16, torch.bfloat16)


@pytest.mark.parametrize("mask", ["none", "bool", "float", "causal"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention(mask: str, scale: float | None) -> None:
    query, key, value = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 6)
    seen = torch.rand(2, 1, 3, 5) > 0.5
    seen[0, 0, 1] = False  # a row that sees nothing
    additive = torch.where(seen, torch.randn(2, 1, 3, 5), -torch.inf)
    settings = {
        "none": {},
        "bool": {"attn_mask": seen},
        "float": {"attn_mask": additive},
        "causal": {"is_causal": True},
    }
    arguments = {"scale": scale, **settings[mask]}
    ours = attention.scaled_dot_product_attention(query, key, value, **arguments)
    assert_close(ours, F.scaled_dot_product_attention(query, key, value, **arguments))
    assert ours.isfinite().all()


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_in_half_precision(dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(2, 4, 7, 8, dtype=dtype) for _ in range(3))
    exact = F.scaled_dot_product_attention(query.float(), key.float(), value.float())
    assert_close(
        attention.scaled_dot_product_attention(query, key, value), exact.to(dtype)
    )  # eager itself is further off


def test_attention_with_shared_heads() -> None:
    query, key, value = torch.randn(2, 6, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    ours = attention.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    assert_close(ours, F.scaled_dot_product_attention(query, key, value, enable_gqa=True))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("use_gelu", [False, True])
def test_encoder_layer(use_gelu: bool, norm_first: bool) -> None:
    shapes = [(24, 8), (24,), (8, 8), (8,)], [(8,)] * 4, [(16, 8), (16,), (8, 16), (8,)]
    qkv_and_projection, norms, feed_forward = ([torch.randn(each) for each in group] for group in shapes)
    given = (torch.randn(2, 5, 8), 8, 2, *qkv_and_projection, use_gelu, norm_first, 1e-2, *norms, *feed_forward)
    kernel = torch.ops.aten._transformer_encoder_layer_fwd.default
    assert_close(attention.transformer_encoder_layer(*given), kernel(*given))
    assert attention.transformer_encoder_layer(*given, mask=torch.zeros(5, 5, dtype=torch.bool)) is NotImplemented


# A mean far from zero: the difference of mean squares would lose all digits here.
FAR = {"offset": 1000.0, "rtol": 1e-3, "atol": 1e-3}


NEAR = {"offset": 0.0, "rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("values", [NEAR, FAR])
def test_normalizations(values: dict[str, Any]) -> None:
    x = torch.randn(2, 6, 4, 5) + values["offset"]
    weight, bias = torch.randn(6), torch.randn(6)
    close: dict[str, Any] = {"rtol": values["rtol"], "atol": values["atol"]}
    pixels = torch.randn(4, 5)
    assert_close(normalization.layer_norm(x, [4, 5], pixels, pixels), F.layer_norm(x, (4, 5), pixels, pixels), **close)
    assert_close(normalization.group_norm(x, 3, weight, bias), F.group_norm(x, 3, weight, bias), **close)
    assert_close(normalization.rms_norm(x, [5]), F.rms_norm(x, (5,)), **close)
    ours = normalization.native_group_norm(x, weight, None, 2, 6, 20, 2, 1e-5)
    for mine, theirs in zip(ours, torch.native_group_norm(x, weight, None, 2, 6, 20, 2, 1e-5), strict=True):
        assert_close(mine, theirs, **close)
    ours = normalization.native_layer_norm(x, [5], None, None, 1e-5)
    for mine, theirs in zip(ours, torch.native_layer_norm(x, (5,), None, None, 1e-5), strict=True):
        assert_close(mine, theirs, **close)


@pytest.mark.parametrize("weight", [None, torch.randn(3)])
@pytest.mark.parametrize("bias", [None, torch.randn(3)])
def test_batch_norm_at_inference(weight: torch.Tensor | None, bias: torch.Tensor | None) -> None:
    x, mean, variance_ = torch.randn(2, 3, 4), torch.randn(3), torch.rand(3)
    ours, *rest = normalization.batch_norm_inference(x, weight, bias, mean, variance_, 0.1, 1e-5)
    assert_close(ours, F.batch_norm(x, mean, variance_, weight, bias))
    assert [each.numel() for each in rest] == [0, 0]


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_is_computed_in_single(dtype: torch.dtype) -> None:
    x = torch.full((4, 300), 60.0, dtype=dtype)
    x[:, 0] = 61.0  # the squares alone overflow float16, and bfloat16 cannot tell 60 from 60.003
    assert_close(normalization.layer_norm(x, [300]), F.layer_norm(x, (300,)))
    assert_close(normalization.rms_norm(x, [300]), F.rms_norm(x, (300,)))
    assert_close(variance.var(x, [1]), x.var(1))


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_multilabel_margin_loss_ignores_what_follows_a_negative_label(reduction: int) -> None:
    x = torch.randn(5, 4)
    target = torch.tensor([[1, 2, -1, 0], [1, 1, -1, -1], [3, 2, 1, 0], [-1, 1, 2, 3], [0, -1, -1, 2]])
    eager = torch.ops.aten.multilabel_margin_loss_forward
    for rows in (slice(None), 0, 4):
        arguments = x[rows], target[rows], reduction
        assert_close(losses.multilabel_margin_loss(*arguments), eager(*arguments))


def test_multilabel_margin_loss_is_lowered_by_our_rule() -> None:
    x, target = torch.randn(2, 3), torch.tensor([[2, -1, 0], [1, 0, -1]])
    assert_close(
        lower(F.multilabel_margin_loss, x, target, output_type="linalg").run(x, target),
        F.multilabel_margin_loss(x, target),
    )

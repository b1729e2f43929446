"""Normalizations."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from .harness import Case, check, normal, table


def trained(norm: nn.Module) -> nn.Module:
    """Return ``norm`` with weights and statistics other than 0 and 1."""
    with torch.no_grad():
        for name, tensor in norm.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(normal(*tensor.shape, seed=len(name)).abs() + 0.5)
    return norm


@pytest.mark.slow_rows("^weight_norm-tosa$", "^local_response-tosa$")
@table(
    Case("layer", lambda: (trained(nn.LayerNorm(6)), (normal(2, 3, 6),))),
    Case("layer_over_two_axes", lambda: (trained(nn.LayerNorm([3, 6])), (normal(2, 3, 6),))),
    Case("layer_without_weights", lambda: (nn.LayerNorm(6, elementwise_affine=False, eps=1e-2), (normal(2, 6),))),
    Case("layer_of_large_values", lambda: (nn.LayerNorm(64), (normal(2, 64) + 1000,)), tolerance=(1e-3, 1e-3)),
    Case("batch", lambda: (trained(nn.BatchNorm2d(4)), (normal(2, 4, 5, 5),))),
    Case("batch_one_axis", lambda: (trained(nn.BatchNorm1d(4)), (normal(3, 4),))),
    Case("group", lambda: (trained(nn.GroupNorm(2, 4)), (normal(2, 4, 5, 5),))),
    Case("instance", lambda: (nn.InstanceNorm2d(4), (normal(2, 4, 5, 5),))),
    Case("rms", lambda: (trained(nn.RMSNorm(6)), (normal(2, 3, 6),))),
    Case("rms_half", lambda: (trained(nn.RMSNorm(6)).bfloat16(), (normal(2, 3, 6, dtype=torch.bfloat16),))),
    Case("unit_length", lambda: (lambda x: F.normalize(x, dim=1), (normal(2, 3, 4),))),
    Case("local_response", lambda: (nn.LocalResponseNorm(3), (normal(2, 4, 5, 5),))),
    Case("weight_norm", lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), (normal(3, 4),))),
)
def test_normalization(case, output_type):
    check(case, output_type)

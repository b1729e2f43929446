"""Decompositions of gradients: operators of joint graphs of loss and gradients that no forward graph has."""

from __future__ import annotations

from fx_importer.decompositions.backward.activation_backward import (
    PROMOTED_BACKWARD,
    hardsigmoid_backward,
    rrelu_backward,
    shrink_backward,
)
from fx_importer.decompositions.backward.attention_backward import attention_backward
from fx_importer.decompositions.backward.avg_pool_backward import AVG_POOL_BACKWARD
from fx_importer.decompositions.backward.convolution_backward import conv_tbc_backward, convolution_backward
from fx_importer.decompositions.backward.distance_backward import DISTANCE_BACKWARD
from fx_importer.decompositions.backward.embedding_backward import EMBEDDING_BACKWARD
from fx_importer.decompositions.backward.grid_sample_backward import grid_sampler_backward
from fx_importer.decompositions.backward.loss_backward import LOSS_BACKWARD
from fx_importer.decompositions.backward.max_pool_backward import MAX_POOL_BACKWARD
from fx_importer.decompositions.backward.pad_backward import PAD_BACKWARD
from fx_importer.decompositions.backward.resize_backward import RESIZE_BACKWARD
from fx_importer.decompositions.backward.segment_reduce_backward import masked_scatter_backward, segment_reduce_backward
from fx_importer.decompositions.backward.weight_norm_backward import weight_norm_backward

BACKWARD = (
    *AVG_POOL_BACKWARD,
    *PAD_BACKWARD,
    *RESIZE_BACKWARD,
    *MAX_POOL_BACKWARD,
    *LOSS_BACKWARD,
    *EMBEDDING_BACKWARD,
    convolution_backward,
    conv_tbc_backward,
    attention_backward,
    hardsigmoid_backward,
    rrelu_backward,
    shrink_backward,
    grid_sampler_backward,
    segment_reduce_backward,
    *DISTANCE_BACKWARD,
    masked_scatter_backward,
    weight_norm_backward,
)

__all__ = ["BACKWARD", "PROMOTED_BACKWARD"]

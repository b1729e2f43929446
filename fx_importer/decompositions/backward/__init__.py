"""Gradients: what a joint graph of loss and gradients holds beside the operators of the model."""

from __future__ import annotations

from fx_importer.decompositions.backward.activation_backward import rrelu_backward, shrink_backward
from fx_importer.decompositions.backward.attention_backward import attention_backward
from fx_importer.decompositions.backward.convolution_backward import convolution_backward
from fx_importer.decompositions.backward.distance_backward import DISTANCES
from fx_importer.decompositions.backward.embedding_backward import EMBEDDING
from fx_importer.decompositions.backward.grid_sample_backward import grid_sampler_backward
from fx_importer.decompositions.backward.loss_backward import LOSSES
from fx_importer.decompositions.backward.max_pool_backward import LARGEST
from fx_importer.decompositions.backward.segment_reduce_backward import segment_reduce_backward
from fx_importer.decompositions.backward.resize_backward import SEPARABLE

BACKWARD = (
    *SEPARABLE,
    *LARGEST,
    *LOSSES,
    *EMBEDDING,
    convolution_backward,
    attention_backward,
    rrelu_backward,
    shrink_backward,
    grid_sampler_backward,
    segment_reduce_backward,
    *DISTANCES,
)

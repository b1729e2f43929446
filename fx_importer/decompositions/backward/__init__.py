"""Gradients: what a joint graph of loss and gradients holds beside the operators of the model."""

from __future__ import annotations

from fx_importer.decompositions.backward.activations import rrelu_backward, shrink_backward
from fx_importer.decompositions.backward.attention import attention_backward
from fx_importer.decompositions.backward.convolution import convolution_backward
from fx_importer.decompositions.backward.distances import DISTANCES
from fx_importer.decompositions.backward.embedding import EMBEDDING
from fx_importer.decompositions.backward.largest import LARGEST
from fx_importer.decompositions.backward.losses import LOSSES
from fx_importer.decompositions.backward.sampling import grid_sampler_backward
from fx_importer.decompositions.backward.segments import segment_reduce_backward
from fx_importer.decompositions.backward.separable import SEPARABLE

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

"""Gradients of convolutions, as convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import are_static, is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.interior_padding import per_axis
from fx_importer.fx_graph.operators import aten


@decomposes(aten.convolution_backward.default)
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """Return the gradients of input, weight and bias.

    The gradient of the input is the transposed convolution, or the forward one for a transposed convolution. The
    gradient of the weight convolves the input with ``grad``, with stride and dilation, and batch and channels,
    exchanged. For a transposed convolution, input and ``grad`` are exchanged. The size of ``grad`` determines the
    output padding, and its number of channels the size of the bias.
    """
    axes = x.dim() - 2
    stride, padding, dilation = (per_axis(setting, axes) for setting in (stride, padding, dilation))
    strided = [k for k in range(1, x.dim()) if k < 2 or stride[k - 2] > 1]  # others have no output padding
    if not is_static(weight) or not are_static(*(tensor.shape[k] for tensor in (grad, x) for k in strided)):
        return NotImplemented
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        if transposed:
            of_input = aten.convolution(grad, weight, None, stride, padding, dilation, False, [0] * axes, groups)
            for k in range(axes):  # an output padding of a stride or more gives extra positions
                of_input = of_input.narrow(2 + k, 0, x.shape[2 + k])
        else:
            reach = [dilation[k] * (weight.shape[2 + k] - 1) + 1 for k in range(axes)]
            least = [(grad.shape[2 + k] - 1) * stride[k] - 2 * padding[k] + reach[k] for k in range(axes)]
            rest = [x.shape[2 + k] - least[k] if stride[k] > 1 else 0 for k in range(axes)]
            of_input = aten.convolution(grad, weight, None, stride, padding, dilation, True, rest, groups)
    if output_mask[1]:
        image, kernel = (grad, x) if transposed else (x, grad)
        of_weight = _weight_gradient(image, kernel, weight.shape, stride, padding, dilation, groups)
    if output_mask[2]:
        of_bias = torch.sum(grad, [0, *range(2, grad.dim())])
    return of_input, of_weight, of_bias


@decomposes(aten.conv_tbc_backward.default)
def conv_tbc_backward(grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor, pad: int) -> Any:
    """Return the gradients of input, weight and bias of ``conv_tbc``, a 1-D convolution of other axes."""
    rows = (tensor.permute(1, 2, 0) for tensor in (grad, x))
    how = (list(bias.shape), [1], [pad], [1], False, [0], 1, [True, True, True])
    of_input, of_weight, of_bias = aten.convolution_backward(*rows, weight.permute(2, 1, 0), *how)
    return of_input.permute(2, 0, 1), of_weight.permute(2, 1, 0), of_bias


def _weight_gradient(
    image: Tensor,
    kernel: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolve [n, groups * a, …] with [n, groups * b, …] to [groups * b, a, …], which is ``shape``."""
    axes = image.dim() - 2
    batch, inner = image.shape[0], image.shape[1] // groups
    swapped = image.reshape(batch, groups, inner, *image.shape[2:]).transpose(0, 2)  # [a, groups, n, …]
    swapped = swapped.reshape(inner, groups * batch, *image.shape[2:])
    turned = kernel.transpose(0, 1)  # [groups * b, n, …]
    result = aten.convolution(swapped, turned, None, dilation, padding, stride, False, [0] * axes, groups)
    for k in range(axes):  # elements that the stride leaves at the end of the image give extra positions
        result = result.narrow(2 + k, 0, shape[2 + k])
    return result.transpose(0, 1)

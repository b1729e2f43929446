"""Batch normalization that follows no convolution, as a convolution of each channel alone."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten


def batch_norm_as_convolution(
    module: fx.GraphModule, node: fx.Node, constant: Callable[[object], Tensor | None]
) -> None:
    """Replace batch normalization over images, by the statistics of training, by a depthwise convolution."""
    x, weight, bias, mean, variance, training, _, eps = node.args[:8]
    value = node.meta.get("val")
    if _follows_product(node) or training or not isinstance(value, Tensor) or value.dim() != 4:
        return
    center, spread, scale, offset = map(constant, (mean, variance, weight, bias))
    if center is None or spread is None or not isinstance(eps, float):
        return
    if (weight is not None and scale is None) or (bias is not None and offset is None):
        return
    factor = (spread + eps).rsqrt() * (1.0 if scale is None else scale)
    shift = (0.0 if offset is None else offset) - center * factor
    constants: list[fx.Node] = []
    with module.graph.inserting_before(node):
        for kind, tensor in (("weight", factor.reshape(-1, 1, 1, 1)), ("bias", shift)):
            name = f"{node.name}_{kind}_of_channels"
            module.register_buffer(name, tensor)
            constants.append(module.graph.get_attr(name))
            constants[-1].meta["val"] = tensor
        made = module.graph.call_function(aten.conv2d.default, (x, *constants, [1, 1], [0, 0], [1, 1], value.shape[1]))
    made.meta |= node.meta
    node.replace_all_uses_with(made)


def _follows_product(node: fx.Node) -> bool:
    source = node.args[0]
    return isinstance(source, fx.Node) and str(source.target).startswith(("aten.conv", "aten.linear"))

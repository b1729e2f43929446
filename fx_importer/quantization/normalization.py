"""Exported modules as the plan of quantization reads them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx
from torch.fx.node import map_arg

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.written_values import without_writes

_ATTENTION = (None, 0.0, False)
"""Mask, dropout and causality of attention."""


def normalize(module: fx.GraphModule) -> None:
    """Replace writes, tensors as keyword arguments, and batch normalization that follows no convolution."""
    graph = module.graph
    without_writes(graph)
    for node in list(graph.nodes):
        if node.op == "call_function" and any(isinstance(each, fx.Node) for each in node.kwargs.values()):
            _positional(node)
        if node.target is aten.view.default:
            node.target = aten.reshape.default  # strides of operands change
        if node.target is aten.scaled_dot_product_attention.default:
            _as_products(node)
        if node.target is aten.batch_norm.default and not _follows_product(node):
            _as_convolution(module, node)
    graph.eliminate_dead_code()
    module.recompile()


def _positional(node: fx.Node) -> None:
    """Pass the keyword arguments of ``node`` by position, as far as its schema allows."""
    names = [each for each in getattr(getattr(node.target, "_schema", None), "arguments", ()) if not each.kwarg_only]
    args, kwargs = list(node.args), dict(node.kwargs)
    for each in names[len(args) :]:
        if not kwargs:
            break
        args.append(kwargs.pop(each.name) if each.name in kwargs else each.default_value)
    node.args, node.kwargs = tuple(args), kwargs


def _as_products(node: fx.Node) -> None:
    """Replace attention without dropout, causality and grouped heads by products and a softmax."""
    _positional(node)
    query, key, value, mask, dropout, causal, *rest = [*node.args, *_ATTENTION[len(node.args) - 3 :]][:7]
    scale, grouped = node.kwargs.get("scale", rest[0] if rest else None), node.kwargs.get("enable_gqa", False)
    values: list[Any] = [each.meta.get("val") for each in (query, key, value) if isinstance(each, fx.Node)]
    kept = mask is not None and (not isinstance(mask, fx.Node) or mask.meta["val"].dtype is not values[0].dtype)
    if len(values) != 3 or dropout or causal or grouped or kept or {len(each.shape[:-2]) for each in values} == {0}:
        return
    if not values[0].shape[:-2] == values[1].shape[:-2] == values[2].shape[:-2]:
        return

    def call(target: Any, *args: Any) -> fx.Node:
        made = node.graph.call_function(target, args)
        made.meta |= {name: each for name, each in node.meta.items() if name != "val"}
        made.meta["val"] = target(*map_arg(args, lambda each: each.meta["val"]))
        return made

    with node.graph.inserting_before(node):
        turned = call(aten.transpose.int, key, -2, -1)
        scores = call(aten.matmul.default, query, turned)
        scores = call(aten.mul.Tensor, scores, scale or values[0].shape[-1] ** -0.5)
        if mask is not None:
            scores = call(aten.add.Tensor, scores, mask)
        node.replace_all_uses_with(call(aten.matmul.default, call(aten.softmax.int, scores, -1), value))
    node.graph.erase_node(node)  # an operator that may draw random numbers is no dead code


def _follows_product(node: fx.Node) -> bool:
    source = node.args[0]
    return isinstance(source, fx.Node) and str(source.target).startswith(("aten.conv", "aten.linear"))


def _as_convolution(module: fx.GraphModule, node: fx.Node) -> None:
    """Replace batch normalization by the statistics of training over images by a convolution of each channel alone."""
    x, weight, bias, mean, variance, training, _, eps = node.args[:8]
    value = node.meta.get("val")
    if training or not isinstance(value, Tensor) or value.dim() != 4:
        return
    center, spread = _held(module, mean), _held(module, variance)
    if center is None or spread is None or not isinstance(eps, float):
        return
    scale, offset = _held(module, weight), _held(module, bias)
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


def _held(module: fx.GraphModule, node: object) -> Tensor | None:
    """Return the tensor of the module that ``node`` reads; None for others."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found.detach()

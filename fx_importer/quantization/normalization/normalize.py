"""Exported modules as the plan of quantization reads them, with batch and RMS norms as single operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import fake_mode_of
from fx_importer.quantization.core_forms import without_core_forms
from fx_importer.quantization.normalization.attention import attention_as_products
from fx_importer.quantization.normalization.recurrent import CELLS, RECURRENT, unroll, unroll_cell

_CASTS = (aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten._to_copy.default)
_LARGEST = 2**24
"""Elements of a constant that is computed once, and not in each call."""


def normalize(module: fx.GraphModule) -> None:
    """Replace operators by those that have integer forms, as each function here says, and compute constants.

    ``module`` is functional: what it holds is constant.
    """
    graph = module.graph
    without_core_forms(graph)
    constants = _Constants(module)
    for node in list(graph.nodes):
        if node.op == "call_function" and any(isinstance(argument, fx.Node) for argument in node.kwargs.values()):
            _positional(node)
        if node.target is aten.view.default:
            node.target = aten.reshape.default  # strides of operands change
        if node.target is aten._assert_tensor_metadata.default:
            graph.erase_node(node)
        elif _is_identity(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target in RECURRENT:
            unroll(node)
        elif node.target in CELLS:
            unroll_cell(node)
        elif node.target is aten.scaled_dot_product_attention.default:
            attention_as_products(node, constants.value)
        elif node.target is aten.batch_norm.default:
            batch_norm_as_convolution(module, node, constants.value)
    graph.eliminate_dead_code()
    constants.materialize()
    for node in graph.find_nodes(op="call_function", target=aten.rsqrt.default):
        find_rms_norm(node, constants.value)
    graph.eliminate_dead_code()
    module.recompile()


def _positional(node: fx.Node) -> None:
    """Pass the keyword arguments of ``node`` by position, as far as its schema allows."""
    names = [
        argument
        for argument in getattr(getattr(node.target, "_schema", None), "arguments", ())
        if not argument.kwarg_only
    ]
    args, kwargs = list(node.args), dict(node.kwargs)
    for argument in names[len(args) :]:
        if not kwargs:
            break
        args.append(kwargs.pop(argument.name) if argument.name in kwargs else argument.default_value)
    node.args, node.kwargs = tuple(args), kwargs


def _is_identity(node: fx.Node) -> bool:
    """Return whether ``node`` casts a tensor to the dtype that it has."""
    if node.op != "call_function" or node.target not in _CASTS or not isinstance(source := node.args[0], fx.Node):
        return False
    return source.meta["val"].dtype == node.meta["val"].dtype


class _Constants:
    """Values of nodes of a module that depend on none of its inputs."""

    def __init__(self, module: fx.GraphModule):
        self._module = module
        self._values: dict[fx.Node, Any] = {}
        self._mode = fake_mode_of(module.graph)

    def value(self, node: object) -> Any:
        """Return the value of ``node``; None for those that depend on inputs."""
        if not isinstance(node, fx.Node):
            return None
        if node not in self._values:
            for source in node.graph.nodes:  # in order: no recursion
                if source not in self._values:
                    self._values[source] = self._computed(source)
        return self._values[node]

    def _computed(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            attribute: Any = self._module
            for part in str(node.target).split("."):
                attribute = getattr(attribute, part)
            return attribute.detach() if isinstance(attribute, Tensor) else None
        target = node.target
        if node.op != "call_function" or not isinstance(target, OpOverload) or target._schema.is_mutable:
            return None
        example = node.meta.get("val")
        if not isinstance(example, Tensor) or not all(isinstance(size, int) for size in example.shape):
            return None
        if torch.Tag.nondeterministic_seeded in target.tags or example.numel() > _LARGEST:
            return None
        values = {operand: self._values.get(operand) for operand in node.all_input_nodes}
        if any(value is None for value in values.values()):
            return None
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        with torch.no_grad():
            return target(*args, **kwargs)

    def materialize(self) -> None:
        """Replace computations on constants, such as masks and positions, by buffers."""
        graph = self._module.graph
        for number, node in enumerate(list(graph.nodes)):
            if (
                node.op != "call_function"
                or self.value(node) is None
                or all(self.value(user) is not None for user in node.users)
            ):
                continue
            name = f"constant_{number}"
            value = self.value(node).clone()
            self._module.register_buffer(name, value)
            with graph.inserting_before(node):
                constant = graph.get_attr(name)
            constant.meta["val"] = self._mode.from_tensor(value, static_shapes=True) if self._mode else value
            self._values[constant] = value
            node.replace_all_uses_with(constant)


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


_MULTIPLIES = (aten.mul.Tensor,)


def find_rms_norm(root: fx.Node, constant: Callable[[fx.Node], Tensor | None]) -> None:
    """Replace ``x * rsqrt(mean(x ** 2, -1) + eps)``, and a factor along the last axis, by ``rms_norm``.

    ``root`` is an operator ``rsqrt``. Zhang and Sennrich 2019, as models of transformers write it.
    """
    if root.target is not aten.rsqrt.default or (mean := _mean_of_squares(root.args[0])) is None:
        return
    x, eps = mean
    size = x.meta["val"].shape[-1]
    for product in [user for user in root.users if user.target in _MULTIPLIES and set(user.args) == {x, root}]:
        last, weight = product, None
        users = list(product.users)
        if len(users) == 1 and users[0].target in _MULTIPLIES:
            for factor in users[0].args:
                factor_ = constant(factor) if isinstance(factor, fx.Node) else None
                if factor_ is not None and list(factor_.shape) == [size]:
                    last, weight = users[0], factor
        with last.graph.inserting_before(last):
            made = last.graph.call_function(aten.rms_norm.default, (x, [size], weight, eps))
        made.meta |= last.meta
        last.replace_all_uses_with(made)


def _mean_of_squares(node: object) -> tuple[fx.Node, float] | None:
    """Return ``x`` and ``eps`` of ``mean(x ** 2, -1, keepdim=True) + eps``."""
    if not isinstance(node, fx.Node) or node.target not in (aten.add.Tensor, aten.add.Scalar) or node.kwargs:
        return None
    mean, eps = node.args[:2]
    if not isinstance(eps, int | float) or not isinstance(mean, fx.Node) or mean.target is not aten.mean.dim:
        return None
    square, axes, *keepdim = mean.args
    if not isinstance(square, fx.Node) or square.target not in (aten.pow.Tensor_Scalar, *_MULTIPLIES):
        return None
    x = square.args[0]
    if not isinstance(x, fx.Node) or mean.kwargs or keepdim != [True] or axes not in ([-1], [x.meta["val"].dim() - 1]):
        return None
    squares = (square.target is aten.pow.Tensor_Scalar and square.args[1] == 2) or (
        square.target in _MULTIPLIES and square.args == (x, x)
    )
    return (x, float(eps)) if squares else None

"""Identity operators, replaced by their argument. In a functional graph a copy is an identity."""

from __future__ import annotations

from torch import fx

from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten, prims
from fx_importer.fx_passes.fx_pass import node_pass
from fx_importer.fx_passes.node_rewriting import NodeRewrites, same_type


def _argument_of_same_type(node: fx.Node) -> fx.Node | None:
    source = node.args[0] if node.args else None
    if isinstance(source, fx.Node) and same_type(value_of(source), value_of(node)):
        return source
    return None


def _multiply_by_one(node: fx.Node) -> fx.Node | None:
    # A scalar only: a tensor of ones takes part in broadcasting and type promotion.
    factor = node.args[1]
    return _argument_of_same_type(node) if isinstance(factor, int | float) and factor == 1 else None


def _identity_permutation(node: fx.Node) -> fx.Node | None:
    axes: list[int] = node.args[1]  # type: ignore[assignment]
    return _argument_of_same_type(node) if [axis % len(axes) for axis in axes] == list(range(len(axes))) else None


def _full_slice(node: fx.Node) -> fx.Node | None:
    step = node.args[4] if len(node.args) > 4 else 1
    return _argument_of_same_type(node) if step == 1 else None


def _full_slice_scatter(node: fx.Node) -> fx.Node | None:
    """Return what is written to a whole tensor (``x[:] = values``)."""
    values, step = node.args[1], node.args[5] if len(node.args) > 5 else 1
    return values if step == 1 and same_type(value_of(values), value_of(node)) else None  # type: ignore[return-value]


def _zero_padding(node: fx.Node) -> fx.Node | None:
    widths: list[int] = node.args[1]  # type: ignore[assignment]
    return None if any(widths) else _argument_of_same_type(node)


def _dropout_in_inference(node: fx.Node) -> fx.Node | None:
    training = node.args[2]
    return None if training else _argument_of_same_type(node)


_COPIES = (
    *(aten.alias.default, aten.clone.default, aten.contiguous.default, aten.detach.default, aten.detach_.default),
    *(aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.resolve_conj.default, aten.resolve_neg.default),
    *(aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default),
    *(prims.convert_element_type.default, prims.view_of.default, prims.copy_strided.default),
)
# These keep the order of elements if the shape does not change.
_SHAPES = (
    *(aten.expand.default, aten.view.default, aten.reshape.default, aten._unsafe_view.default),
    *(aten.flatten.using_ints, aten.unflatten.int, aten.repeat.default),
    *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
)

IDENTITIES: NodeRewrites = {
    **dict.fromkeys((*_COPIES, *_SHAPES), _argument_of_same_type),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar), _multiply_by_one),
    **dict.fromkeys((aten.pad.default, aten.constant_pad_nd.default), _zero_padding),
    aten.permute.default: _identity_permutation,
    aten.slice.Tensor: _full_slice,
    aten.slice_scatter.default: _full_slice_scatter,
    aten.dropout.default: _dropout_in_inference,
}


REMOVE_IDENTITIES = node_pass("remove-identities", IDENTITIES)
"""Identities show once overloads are unified."""

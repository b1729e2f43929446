"""Properties of operators that local decomposition depends on: composite, identity, mutating, with ordered effects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._export.utils import _is_cia_op, _is_preservable_cia_op
from torch._higher_order_ops.effects import _get_effect
from torch._ops import OpOverload, OpOverloadPacket

from fx_importer.fx_graph.aliasing import mutated_arguments
from fx_importer.fx_graph.operators import aten

# A view is a reshape in MLIR; torch's composite would only decide whether to copy.
_KEPT = frozenset((aten.view.default, aten.reshape.default))
_IDENTITIES = frozenset((aten.detach_.default, aten.detach.default, aten.lift_fresh.default, aten.alias.default))


@cache
def is_composite(operator: OpOverload) -> bool:
    """Return whether ``operator`` is always decomposed: composite, and not kept by torch since it may alias."""
    return operator not in _KEPT and _is_cia_op(operator) and not _is_preservable_cia_op(operator)


def is_identity(operator: Any) -> bool:
    """Return whether ``operator`` returns its argument."""
    return operator in _IDENTITIES


def alias_source(node: fx.Node) -> fx.Node | None:
    """Return the argument that the result of ``node`` aliases as a whole: returned unchanged, or overwritten."""
    if not isinstance(node.target, OpOverload) or not node.args or not isinstance(source := node.args[0], fx.Node):
        return None
    if is_identity(node.target) or source in mutated_arguments(node):
        return source
    return source if node.target.overloadpacket is aten.to and _is_no_op_conversion(node, source) else None


def _is_no_op_conversion(node: fx.Node, source: fx.Node) -> bool:
    new, old = node.meta.get("val"), source.meta.get("val")
    if not isinstance(new, Tensor) or not isinstance(old, Tensor) or (new.dtype, new.device) != (old.dtype, old.device):
        return False
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    arguments = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return not arguments.get("copy") and arguments.get("memory_format") in (None, torch.preserve_format)


@cache
def has_ordered_effect(operator: OpOverload) -> bool:
    """Return whether calls of ``operator`` have ordered effects, for which torch threads a token through them."""
    try:
        return _get_effect(operator) is not None
    except RuntimeError:
        return False


@cache
def functional_form(operator: OpOverload) -> OpOverload | None:
    """Return the functional variant of ``operator``, which mutates its first argument; None if there is none."""
    return None if torch.Tag.inplace_view in operator.tags else _non_mutating_form(operator)


@cache
def view_form(operator: OpOverload) -> OpOverload | None:
    """Return the view operator whose in-place variant is ``operator``; None if there is none."""
    return _non_mutating_form(operator) if torch.Tag.inplace_view in operator.tags else None


def _non_mutating_form(operator: OpOverload) -> OpOverload | None:
    packet = operator.overloadpacket.__name__
    if not packet.endswith("_") or packet.endswith("__"):
        return None
    functional = getattr(getattr(torch.ops, operator.namespace), packet.removesuffix("_"), None)
    forms = (
        (getattr(functional, name) for name in functional.overloads())
        if isinstance(functional, OpOverloadPacket)
        else ()
    )
    return next((form for form in forms if _has_same_arguments(form, operator)), None)


def _has_same_arguments(form: OpOverload, operator: OpOverload) -> bool:
    """Return whether ``form`` is a functional variant of ``operator``: same arguments, one result, no mutation."""
    if form._schema.is_mutable or len(form._schema.returns) != 1:
        return False
    return _arguments(form) == _arguments(operator) and _writes_to_first_only(operator)


def _arguments(operator: OpOverload) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in operator._schema.arguments]


def _writes_to_first_only(operator: OpOverload) -> bool:
    writes = [
        argument.alias_info is not None and argument.alias_info.is_write for argument in operator._schema.arguments
    ]
    return writes[0] and not any(writes[1:])


def is_decomposed(operator: OpOverload, rules: Mapping[Any, Any]) -> bool:
    """Return whether a functional ``operator`` is decomposed: it has a rule or is composite."""
    return operator in rules or is_composite(operator)

"""What is to be known of an operator before it is decomposed: whether it stays, and what it writes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._export.utils import _is_cia_op, _is_preservable_cia_op
from torch._higher_order_ops.effects import _get_effect
from torch._ops import OpOverload, OpOverloadPacket

from fx_importer.fx_graph.aliasing import mutated_arguments
from fx_importer.fx_graph.operators import aten

# Any view is a reshape to us: torch's composite would only find out whether it has to copy.
_KEPT = frozenset((aten.view.default, aten.reshape.default))
_IDENTITIES = frozenset((aten.detach_.default, aten.detach.default, aten.lift_fresh.default, aten.alias.default))

_STATISTICS, _TRAINING = 3, 5
_UPDATE_STATISTICS = frozenset(
    (
        *(aten.batch_norm.default, aten.native_batch_norm.default),
        *(aten._batch_norm_impl_index.default, aten.instance_norm.default),
    )
)


@cache
def is_composite(operator: OpOverload) -> bool:
    """Whether ``operator`` never stays: it is defined by others, and torch would not keep it, since it may alias."""
    return operator not in _KEPT and _is_cia_op(operator) and not _is_preservable_cia_op(operator)


def is_identity(operator: Any) -> bool:
    """Whether ``operator`` returns its argument."""
    return operator in _IDENTITIES


def alias_source(node: fx.Node) -> fx.Node | None:
    """Return the argument that ``node`` is another name for: it returns it, or writes to all of it and returns it."""
    if not isinstance(node.target, OpOverload) or not node.args or not isinstance(source := node.args[0], fx.Node):
        return None
    if is_identity(node.target) or source in mutated_arguments(node):
        return source
    return source if node.target.overloadpacket is aten.to and _is_no_op_conversion(node, source) else None


def _is_no_op_conversion(node: fx.Node, source: fx.Node) -> bool:
    new, old = node.meta.get("val"), source.meta.get("val")
    if not isinstance(new, Tensor) or not isinstance(old, Tensor) or (new.dtype, new.device) != (old.dtype, old.device):
        return False
    names = [each.name for each in node.target._schema.arguments]  # type: ignore[union-attr]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return not given.get("copy") and given.get("memory_format") in (None, torch.preserve_format)


@cache
def has_ordered_effect(operator: OpOverload) -> bool:
    """Whether calls of ``operator`` have an effect whose order counts: torch passes a token from one to the next."""
    try:
        return _get_effect(operator) is not None
    except RuntimeError:
        return False


def updates_running_statistics(operator: OpOverload, args: Sequence[Any]) -> bool:
    """Whether a normalization writes to its running statistics, which its schema does not say."""
    if operator not in _UPDATE_STATISTICS:
        return False
    return len(args) > _TRAINING and bool(args[_TRAINING]) and args[_STATISTICS] is not None


@cache
def functional_form(operator: OpOverload) -> OpOverload | None:
    """Return the operator that returns what ``operator`` writes to its first argument; None where there is none."""
    return None if torch.Tag.inplace_view in operator.tags else _non_mutating_form(operator)


@cache
def view_form(operator: OpOverload) -> OpOverload | None:
    """Return the operator that returns the view that ``operator`` makes of its first argument; None where none does."""
    return _non_mutating_form(operator) if torch.Tag.inplace_view in operator.tags else None


def _non_mutating_form(operator: OpOverload) -> OpOverload | None:
    packet = operator.overloadpacket.__name__
    if not packet.endswith("_") or packet.endswith("__"):
        return None
    found = getattr(getattr(torch.ops, operator.namespace), packet.removesuffix("_"), None)
    forms = (getattr(found, name) for name in found.overloads()) if isinstance(found, OpOverloadPacket) else ()
    return next((form for form in forms if _has_same_arguments(form, operator)), None)


def _has_same_arguments(form: OpOverload, operator: OpOverload) -> bool:
    """Whether ``form`` may return what ``operator``, of the same arguments, writes to its first."""
    if form._schema.is_mutable or len(form._schema.returns) != 1:
        return False
    return _arguments(form) == _arguments(operator) and _writes_to_first_only(operator)


def _arguments(operator: OpOverload) -> list[tuple[str, str]]:
    return [(each.name, str(each.type)) for each in operator._schema.arguments]


def _writes_to_first_only(operator: OpOverload) -> bool:
    writes = [each.alias_info is not None and each.alias_info.is_write for each in operator._schema.arguments]
    return writes[0] and not any(writes[1:])


def is_decomposed(operator: OpOverload, rules: Mapping[Any, Any]) -> bool:
    """Whether a functional ``operator`` is decomposed."""
    return operator in rules or is_composite(operator)

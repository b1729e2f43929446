"""Operators on lists of tensors, of optimizers, as the operators on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload

from fx_importer.decompositions.engine.list_mutations import LOOP
from fx_importer.decompositions.engine.table import Decomposition, decomposes


def _each(operator: OpOverload) -> Decomposition:
    @decomposes(operator)
    def each(*args: Any, **kwargs: Any) -> Any:
        return operator._op_dk(LOOP, *args, **kwargs)

    return each


def _operators() -> Iterator[OpOverload]:
    """Yield the operators on lists that return their results: `list_mutations` expands those in place."""
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::_foreach_") and not schema.is_mutable:
            packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"))
            operator = getattr(packet, schema.overload_name or "default")
            if operator.has_kernel_for_dispatch_key(LOOP):
                yield operator


FOREACH = tuple(map(_each, _operators()))

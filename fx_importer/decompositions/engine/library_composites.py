"""Operators of other libraries, which torch lacks at import, such as torchao's ``quantize_affine``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.decompositions.elementwise.prim_operators import INDUCTOR_RULES
from fx_importer.decompositions.matmul.grouped_mm import LIBRARY_RULES

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_TORCH_NAMESPACES = frozenset(("aten", "prims", "prim", "quantized", "mkldnn", "sparse", "inductor"))


_BY_NAME = {**LIBRARY_RULES, **INDUCTOR_RULES}


def library_composites(program: ExportedProgram) -> dict[OpOverload, Callable[..., Any]]:
    """Return rules for operators in ``program``: composites of other libraries, and those with a rule by name."""
    modules = [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    targets = {node.target for module in modules for node in module.graph.nodes if node.op == "call_function"}
    operators = {target for target in targets if isinstance(target, OpOverload)}
    composites = {operator for operator in operators if operator.namespace not in _TORCH_NAMESPACES}
    known = {operator: _BY_NAME[operator.name()] for operator in operators if operator.name() in _BY_NAME}
    made = {
        operator: partial(operator._op_dk, _COMPOSITE)  # `OpOverload.decompose` would find this rule, and recurse
        for operator in composites
        if operator.has_kernel_for_dispatch_key(_COMPOSITE)
    }
    return made | known

"""Operators of other libraries that are written in terms of operators: torchao's ``quantize_affine`` is one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_TORCHS_OWN = frozenset(("aten", "prims", "prim", "quantized", "mkldnn", "sparse", "inductor"))


def compositions(program: ExportedProgram) -> dict[OpOverload, Callable[..., Any]]:
    """Return those of the operators in ``program`` that were registered as compositions, with what they are made of."""
    modules = [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    targets = {node.target for module in modules for node in module.graph.nodes if node.op == "call_function"}
    return {
        target: partial(target._op_dk, _COMPOSITE)  # `decompose` would find the rule, and call itself
        for target in targets
        if isinstance(target, OpOverload)
        and target.namespace not in _TORCHS_OWN
        and target.has_kernel_for_dispatch_key(_COMPOSITE)
    }

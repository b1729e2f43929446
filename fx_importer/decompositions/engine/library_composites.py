"""Composite operators of other libraries, such as torchao's ``quantize_affine``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.decompositions.matmul.grouped_mm import LIBRARY_RULES

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_TORCH_NAMESPACES = frozenset(("aten", "prims", "prim", "quantized", "mkldnn", "sparse", "inductor"))


def library_composites(program: ExportedProgram) -> dict[OpOverload, Callable[..., Any]]:
    """Return rules for the operators of other libraries in ``program`` that are composite or in `LIBRARY_RULES`."""
    modules = [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    targets = {node.target for module in modules for node in module.graph.nodes if node.op == "call_function"}
    found = {each for each in targets if isinstance(each, OpOverload) and each.namespace not in _TORCH_NAMESPACES}
    known = {each: LIBRARY_RULES[each.name()] for each in found if each.name() in LIBRARY_RULES}
    made = {
        each: partial(each._op_dk, _COMPOSITE)  # `OpOverload.decompose` would find this rule, and recurse
        for each in found
        if each.has_kernel_for_dispatch_key(_COMPOSITE)
    }
    return made | known

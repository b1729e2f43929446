"""Operators of other libraries, which torch lacks at import, such as torchao's ``quantize_affine``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.decompositions.elementwise.prim_operators import INDUCTOR_RULES
from fx_importer.decompositions.matmul.matmul import LIBRARY_RULES
from fx_importer.decompositions.vision import VISION
from fx_importer.errors import UsageError

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_TORCH_NAMESPACES = frozenset(("aten", "prims", "prim", "quantized", "mkldnn", "sparse", "inductor"))


_OURS = {**LIBRARY_RULES, **INDUCTOR_RULES, **VISION}

ENTRY_POINTS = "fx_importer.decompositions"
"""Entry point group of tables of other packages: a namespace of operators, and a mapping from their names to rules."""


def library_composites(program: ExportedProgram) -> dict[OpOverload, Callable[..., Any]]:
    """Return rules for operators in ``program``: composites of other libraries, and those with a rule by name.

    Raises:
        UsageError: if a package offers a table that cannot be imported, or is none.
    """
    modules = [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    targets = {node.target for module in modules for node in module.graph.nodes if node.op == "call_function"}
    operators = {target for target in targets if isinstance(target, OpOverload)}
    foreign = {operator for operator in operators if operator.namespace not in _TORCH_NAMESPACES}
    by_name = {**_OURS, **_offered({operator.namespace for operator in foreign})} if foreign else _OURS
    known = {operator: by_name[operator.name()] for operator in operators if operator.name() in by_name}
    made = {
        operator: partial(operator._op_dk, _COMPOSITE)  # `OpOverload.decompose` would find this rule, and recurse
        for operator in foreign
        if operator.has_kernel_for_dispatch_key(_COMPOSITE)
    }
    return made | known


def _offered(namespaces: Set[str]) -> dict[str, Callable[..., Any]]:
    """Return the rules that installed packages offer for operators of ``namespaces``, by name."""
    rules: dict[str, Callable[..., Any]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        if point.name not in namespaces:
            continue
        where = f"the entry point '{point.name} = {point.value}' in '{ENTRY_POINTS}'"
        try:
            table = point.load()
        except Exception as error:
            raise UsageError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
        if not isinstance(table, Mapping) or not all(isinstance(key, str) and callable(table[key]) for key in table):
            raise UsageError(
                f"{where} is {table!r}; a mapping from names of operators, such as '{point.name}::name', to functions "
                "is accepted"
            )
        rules |= table
    return rules

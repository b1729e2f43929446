"""Handlers of higher-order operators: a file for each, and their table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from fx_importer.importing.handlers.higher_order.associative_scan import import_associative_scan
from fx_importer.importing.handlers.higher_order.auto_functionalized import import_auto_functionalized
from fx_importer.importing.handlers.higher_order.auto_functionalized_v2 import import_auto_functionalized_v2
from fx_importer.importing.handlers.higher_order.cond import import_cond
from fx_importer.importing.handlers.higher_order.flex_attention import import_flex_attention
from fx_importer.importing.handlers.higher_order.invoke_subgraph import import_invoke_subgraph
from fx_importer.importing.handlers.higher_order.map import import_map
from fx_importer.importing.handlers.higher_order.out_dtype import import_out_dtype
from fx_importer.importing.handlers.higher_order.scan import import_scan
from fx_importer.importing.handlers.higher_order.triton_kernel_wrapper_functional import import_triton_kernel
from fx_importer.importing.handlers.higher_order.while_loop import import_while_loop
from fx_importer.importing.handlers.higher_order.with_effects import import_with_effects
from fx_importer.importing.handlers.higher_order.wrap_with_mode import (
    import_hints_wrapper,
    import_run_const_graph,
    import_strict_mode,
    import_wrapped,
)
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.importing.value_map import Results

hop = torch.ops.higher_order

Handler = Callable[[fx.Node, NodeBuilder], Results]
"""Import a node and return its results."""


HIGHER_ORDER: Mapping[Any, Handler] = {
    hop.cond: import_cond,
    hop.scan: import_scan,
    hop.map_impl: import_map,
    hop.associative_scan: import_associative_scan,
    hop.flex_attention: import_flex_attention,
    hop.while_loop: import_while_loop,
    hop.wrap_with_set_grad_enabled: import_wrapped,
    hop.wrap_with_autocast: import_wrapped,
    hop.strict_mode: import_strict_mode,
    hop.hints_wrapper: import_hints_wrapper,
    hop.invoke_subgraph: import_invoke_subgraph,
    hop.run_const_graph: import_run_const_graph,
    hop.with_effects: import_with_effects,
    hop.auto_functionalized: import_auto_functionalized,
    hop.auto_functionalized_v2: import_auto_functionalized_v2,
    hop.triton_kernel_wrapper_functional: import_triton_kernel,
    hop.out_dtype: import_out_dtype,
}

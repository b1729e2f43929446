"""Training on the JIT: PyTorch's own kernels compute gradients of convolutions and max pools, as in eager PyTorch."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from fx_importer.decompositions.engine.table import Decomposition, LayeredRule
from fx_importer.decompositions.nn import pooling
from fx_importer.dynamo.backend_options import GraphOptions
from fx_importer.engines import engine_of
from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import Lowerings, external, listed
from fx_importer.output_types import OutputType
from fx_importer.targets import target_for

_OPERATORS = (
    aten.convolution_backward.default,
    aten.max_pool2d_with_indices_backward.default,
    aten.max_pool3d_with_indices_backward.default,
)
_KERNELS = Lowerings([external(overload, symbol=overload.overloadpacket.__name__) for overload in _OPERATORS])
_POOL = aten.max_pool2d_with_indices.default
_CHOOSES = frozenset(("decomposition_table", "extra", "backend_legal_ops", "pipeline"))
"""Options by which a user says what becomes of operators."""


def with_gradient_kernels(settings: GraphOptions, graph: fx.Graph) -> Mapping[str, Any]:
    """Return the options of `lower` for ``graph``, by which the JIT calls the operators that compute these gradients.

    Decomposed, the gradient of a weight would be a convolution by a kernel of the size of the image, and the gradient
    of the input would have zeros between its elements; both are slower, and need transposed copies of their operands.
    The gradient of a max pool would be sums into elements by their indices, on one thread. If a graph saves indices,
    they and the values are found at once. Rules of the user come first; other engines, and TOSA, which validates every
    operation, get the decompositions.
    """
    options = settings.lowering
    engine = engine_of(settings.engine)
    calls_torch = engine is not None and engine.runs_stubs and settings.output_type in engine.default_for
    if not calls_torch or _CHOOSES & options.keys():
        return options
    _keep_freed_memory()
    pools = (_pools_at_once(),) if _has_indices(graph) else ()
    return {**options, "lowerings": (*listed(options.get("lowerings", ())), _KERNELS, *pools)}


def _has_indices(graph: fx.Graph) -> bool:
    """Return whether ``graph`` takes the indices of a max pool."""
    pools = graph.find_nodes(op="call_function", target=_POOL)
    return any(user.target is operator.getitem and user.args[1] == 1 for node in pools for user in node.users)


@functools.cache
def _pools_at_once() -> Lowerings:
    """Return the rule by which values and indices of a max pool are found at once, and by the table where it cannot."""
    by_table = target_for(OutputType.LINALG_ON_TENSORS).decompositions[_POOL]
    return Lowerings([Decomposition((_POOL,), LayeredRule(pooling.max_pool2d_at_once.rule, by_table))])


@functools.cache
def _keep_freed_memory() -> None:
    """Have glibc keep more freed memory: up to twice the largest block, of at most 32 MiB, that was freed before.

    Otherwise it returns the results of each kernel to the system, and the next call gets them page by page: that was a
    third of the time of a training step.
    """
    torch.empty((32 << 20) - (1 << 16), dtype=torch.uint8)

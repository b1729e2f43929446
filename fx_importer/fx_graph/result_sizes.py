"""Results of data-dependent size, padded to a size that does not depend on values; the numbers of their elements.

A program returns such numbers after the user's outputs, as part of its output structure, `PaddedOutputs`: so they
survive rewrites, and tracing by torch.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree


class ResultSize(NamedTuple):
    """A size of outputs that depends on values."""

    name: str
    """The symbol of the size in the program as exported."""
    axes: tuple[tuple[int, int], ...]
    """The leaves of the outputs, and their axes, that are padded and have this size."""


class PaddedOutputs(NamedTuple):
    """The structure of the outputs of a program with padded results."""

    outputs: Any
    """The user's outputs."""
    sizes: dict[ResultSize, Any]


def with_result_sizes(program: ExportedProgram, sizes: Sequence[tuple[ResultSize, str]]) -> ExportedProgram:
    """Return ``program``, whose graph returns one more number for each of ``sizes``, the node of this name."""
    specs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name), None) for _, name in sizes]
    old = program.graph_signature
    changed = copy.copy(program)
    changed._graph_signature = ExportGraphSignature(list(old.input_specs), [*old.output_specs, *specs])
    calls = list(program.module_call_graph)
    if calls and (signature := calls[0].signature) is not None:
        leaves = pytree.tree_unflatten(list(range(signature.out_spec.num_leaves)), signature.out_spec)
        spec = pytree.tree_structure(PaddedOutputs(leaves, {size: 0 for size, _ in sizes}))
        calls[0] = dataclasses.replace(calls[0], signature=dataclasses.replace(signature, out_spec=spec))
    changed._module_call_graph = calls
    return changed


def result_sizes(program: ExportedProgram) -> tuple[ResultSize, ...]:
    """Return the sizes that ``program`` returns after the user's outputs, in order."""
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    if signature is None or not _is_padded(signature.out_spec):
        return ()
    return tuple(signature.out_spec.child(1).context)


def of_user(spec: pytree.TreeSpec | None) -> pytree.TreeSpec | None:
    """Return the structure of the user's outputs; ``spec`` may include the sizes."""
    return spec.child(0) if spec is not None and _is_padded(spec) else spec


def _is_padded(spec: pytree.TreeSpec) -> bool:
    return not spec.is_leaf() and spec.context is PaddedOutputs

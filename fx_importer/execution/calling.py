"""The calling convention: a model's nested inputs and outputs as the flat arguments and results of its function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError


def flatten_inputs(program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the function's arguments for a call of the model: tensors and numbers, in order.

    None and strings have no value at run time and are left out.

    Raises:
        UsageError: if the inputs are not nested as the exported ones were, or differ from a constant that the program
            was exported for.
    """
    expected = program.call_spec.in_spec
    order = expected.child(1).context if expected is not None else []
    ordered = {name: kwargs[name] for name in order if name in kwargs} | dict(kwargs)
    leaves, spec = pytree.tree_flatten((tuple(args), ordered))
    if spec != expected:
        raise UsageError(f"the inputs are nested as {spec}, but the program was exported for {expected}")
    flat: list[Any] = []
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    for leaf, input_spec in zip(leaves, specs, strict=True):
        if isinstance(input_spec.arg, ConstantArgument):
            fixed = input_spec.arg.value
            if type(leaf) is not type(fixed) or leaf != fixed:
                raise UsageError(
                    f"the input '{input_spec.arg.name}' is {leaf!r}, but was fixed to {fixed!r} by the export"
                )
            if not isinstance(fixed, (bool, int, float)):
                continue
        flat.append(leaf)
    return flat


def unflatten_results(program: ExportedProgram, results: Sequence[Any]) -> Any:
    """Return what the model returns, from what its function returned.

    An integer tensor gets back the sign that MLIR's signless types do not keep.
    """
    remaining = iter(results)
    returned: Any = program.graph.output_node().args[0]
    leaves = []
    for spec, node in zip(program.graph_signature.output_specs, returned, strict=True):
        assert spec.kind is OutputKind.USER_OUTPUT, f"{spec.arg} is state"
        if isinstance(node, torch.fx.Node):
            leaves.append(_as_exported(next(remaining), node.meta["val"]))
        elif isinstance(node, (bool, int, float)):
            leaves.append(next(remaining))
        else:
            leaves.append(node)
    spec = program.call_spec.out_spec
    assert spec is not None
    return pytree.tree_unflatten(leaves, spec)


def _as_exported(result: Any, example: Any) -> Any:
    if isinstance(result, torch.Tensor) and isinstance(example, torch.Tensor) and result.dtype != example.dtype:
        return result.view(example.dtype)
    return result

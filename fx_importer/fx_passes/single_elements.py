"""Refusal of weights of one element without values that folding has no end for."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.errors import UsageError
from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.programs import weight_names
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.options import Weights


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Return ``program``. Raise `UsageError` if it converts an external weight of one element to another dtype.

    MLIR's folding of ``tosa.cast`` takes such a resource for a splat and reads its element without end.
    """
    outside = weight_names(program)
    named = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target in outside}
    for node in program.graph.find_nodes(op="placeholder"):
        value = value_of(node)
        if node.name in named and isinstance(value, torch.Tensor) and value.numel() == 1:
            for user in node.users:
                if _converts(user, value.dtype):
                    output_type = context.target.output_type.value
                    raise UsageError(
                        f"weights='external' and output_type='{output_type}': the weight '{named[node.name]}' has one "
                        f"element, of {value.dtype}, and {user.target} converts it, which MLIR folds without end "
                        f"where the value is not in the module: pass weights='inline' or weights='args'"
                    )
    return program


def _converts(user: fx.Node, dtype: torch.dtype) -> bool:
    """Return whether ``user`` has an operand or a result that ``dtype`` is promoted to."""
    if user.op != "call_function":
        return False
    operands = [value_of(operand) for operand in user.all_input_nodes]
    result = value_of(user)
    is_test = dtype.is_floating_point and getattr(result, "dtype", None) == torch.bool
    values = operands if is_test else [*operands, result]
    return any(isinstance(value, torch.Tensor) and value.dtype != dtype for value in values)


REFUSE_CONVERTED_ELEMENTS = FxPass(
    "refuse-converted-elements",
    _run,
    lambda context: context.target.folds_casts and context.options.importing.weights is Weights.EXTERNAL,
)

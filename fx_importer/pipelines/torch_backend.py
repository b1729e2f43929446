"""Pipeline from the imported torch dialect to its backend form, from which all other pipelines start."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import torch_op_names
from fx_importer.options import LoweringOptions
from fx_importer.pipelines.contracts import TORCH, contract
from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.stage import Pass, Stage, on_functions


def torch_backend(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to the torch dialect's backend form.

    Raises:
        UsageError: if a backend-legal op does not exist.
    """
    legal = _legal_names(options.backend_legal_ops)
    return Pipeline(
        "torch-backend",
        (
            Stage(
                "torch-backend",
                "Calls are inlined; torch ops without a lowering of their own are decomposed.",
                (
                    on_functions("torch-match-quantized-custom-ops"),
                    Pass("inline"),  # and canonicalize each function
                    # No torch-reduce-op-variants: it turns ops on mutable tensors into ops on values, and an imported
                    # program has no others; but it fails on every torch.operator.
                    on_functions(
                        Pass("torch-decompose-complex-ops", {"legal-ops": legal} if legal else {}),
                        "torch-recompose-complex-ops",
                        "canonicalize",
                    ),
                ),
            ),
        ),
    )


def torch_contract(options: LoweringOptions) -> Pipeline:
    """Return the pipeline that checks the contract of the torch dialect in backend form."""
    return Pipeline("torch", (contract(TORCH, options.contract),))


def _legal_names(ops: Iterable[str]) -> tuple[str, ...]:
    """Return ``ops`` without the prefix ``torch.``, as the pass compares them: ``aten.foo``."""
    names = tuple(op.removeprefix("torch.") for op in ops)
    # The pass ignores unknown names. Custom ops may be unknown, ops of ATen may not.
    wrong = [name for name in names if name.startswith("aten.") and f"torch.{name}" not in torch_op_names()]
    if wrong:
        hints = {name: _suggestions(name) for name in wrong}
        listed = "; ".join(f"'{name}'" + (f" (perhaps {hint})" if hint else "") for name, hint in hints.items())
        raise UsageError(f"backend_legal_ops: the torch dialect has no op {listed}")
    return names


def _suggestions(name: str) -> str:
    known = [operator.removeprefix("torch.") for operator in torch_op_names()]
    overloads = sorted(operator for operator in known if operator.startswith(f"{name}."))
    return " or ".join(f"'{overload}'" for overload in overloads or difflib.get_close_matches(name, known, n=2))

"""Kept operators whose C++ lowering differs from eager: corrected, refused or warned of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer import lower
from fx_importer.decompositions.engine.kept.fault_table import Severity, faults_of, operators_with_faults
from fx_importer.errors import FxImporterError, KeptOperatorError, KeptOperatorWarning
from fx_importer.output_types import OutputType

X = torch.arange(12.0).reshape(4, 3) - 5
LOWERED = ("linalg-on-tensors", "tosa", "stablehlo")


@pytest.mark.parametrize(
    "keep, function, inputs",
    [
        ("aten.index.Tensor", lambda x, i: x[i], (X, torch.tensor([-1, 0]))),
        ("aten.index_put", lambda x, i: x.index_put((i,), torch.tensor(7.0)), (X, torch.tensor([-1, 0]))),
        ("aten.remainder", lambda x: torch.remainder(x, 3.0), (X,)),
    ],
    ids=["index", "index_put", "remainder"],
)
def test_results_are_corrected(keep: str, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
    lowered = lower(function, *inputs, output_type="stablehlo", keep=[keep])
    assert torch.equal(lowered.run(*inputs), function(*inputs))
    assert any(str(node.target).startswith(keep) for node in lowered.program.graph.nodes)


def test_difference_is_warned_of() -> None:
    with pytest.warns(KeptOperatorWarning, match=r"keep= leaves aten\.gelu\.default .* approximate='tanh', off by"):
        lowered = lower(torch.nn.GELU("tanh"), X, output_type="linalg-on-tensors", keep=["aten.gelu"])
    assert any("gelu" in remark for stage in lowered.trace.stages for remark in stage.remarks)


def test_wrong_call_is_refused() -> None:
    def rest(x: Tensor) -> Tensor:
        return x % 3

    x = torch.arange(12).reshape(4, 3) - 5
    with pytest.raises(KeptOperatorError, match=r"(?s)aten\.remainder\.Scalar.*test_kept_faults") as raised:
        lower(rest, x, output_type="stablehlo", keep=["aten.remainder"])
    assert raised.value.operator == "aten.remainder.Scalar"


def test_torch_mlirs_option_warns() -> None:
    with pytest.warns(KeptOperatorWarning, match="backend_legal_ops= leaves aten.gelu.default"):
        lower(torch.nn.GELU("tanh"), X, output_type="linalg-on-tensors", backend_legal_ops=["aten.gelu"])


@pytest.mark.parametrize("output_type", LOWERED)
def test_mask_is_no_index(output_type: str) -> None:
    with pytest.raises(FxImporterError, match=r"aten\.index"):
        lower(lambda x: x[x[:, 0] > 0].sum(), X, output_type=output_type, keep=["aten.index.Tensor"])


def test_extra_rule_that_declines_leaves_our_own() -> None:
    extra = {"aten.gelu": lambda x, approximate="none": NotImplemented}
    lowered = lower(torch.nn.GELU("tanh"), X, output_type="linalg-on-tensors", extra=extra)
    assert torch.allclose(lowered.run(X), F.gelu(X, approximate="tanh"), 1e-6, 1e-6)


@pytest.mark.parametrize("output_type", LOWERED)
def test_table_has_rows(output_type: str) -> None:
    kind = OutputType.get(output_type)
    assert len(operators_with_faults(kind)) > 30
    (row,) = (row for row in faults_of("aten.log_sigmoid.default", kind) if row.conditions == "float32")
    assert row.severity is Severity.INEXACT
    assert "-inf where eager has -100" in row.what

"""An ``assert`` on tensors in a graph of TorchDynamo is checked by each call of what the graph becomes."""

from __future__ import annotations

import pytest
import torch

from fx_importer import UnsupportedProgramError
from fx_importer.dynamo import import_function
from fx_importer.errors import AssumptionError
from tests.e2e import assumption_programs as programs

ONES = programs.ONES
RISING, FALLING = programs.RISING, programs.FALLING
VIOLATED = (
    r"`\(x\[1:\] > x\[:-1\]\).all\(\)` is True, at .*programs.py:\d+ \(otherwise .*AssertionError\('x must increase'\)"
)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_functions_of_import_function_check_asserts(output_type: str) -> None:
    imported = import_function(programs.asserts, RISING, output_type=output_type)
    assert imported.lowered is not None
    caller = imported.lowered.caller(backend="jit")
    assert torch.equal(caller(RISING)[0], 2 * RISING)
    with pytest.raises(AssumptionError, match="'graph_0' assumes that " + VIOLATED):
        caller(FALLING)
    assert imported.verify(backends=["jit"])


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_compiled_functions_check_asserts(output_type: str) -> None:
    compiled = torch.compile(programs.asserts, backend="fx_importer", options={"output_type": output_type})
    assert torch.equal(compiled(RISING), 2 * RISING)
    with pytest.raises(AssumptionError, match=VIOLATED):
        compiled(FALLING)


def test_gradients_of_functions_with_asserts() -> None:
    compiled = torch.compile(programs.asserts, backend="fx_importer")
    x = RISING.clone().requires_grad_()
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))
    with pytest.raises(AssumptionError, match=VIOLATED):
        compiled(-x)


def test_asserts_in_branches_of_torch_cond() -> None:
    imported = import_function(programs.asserts_in_a_branch, ONES, output_type="linalg-on-tensors")
    assert imported.lowered is not None
    caller = imported.lowered.caller(backend="jit")
    assert torch.equal(caller(ONES)[0], 2 * ONES)
    with pytest.raises(AssumptionError, match="inner"):
        caller(-ONES)
    with pytest.raises(UnsupportedProgramError, match="inside of control flow"):
        import_function(programs.asserts_in_a_branch, ONES, output_type="tosa")

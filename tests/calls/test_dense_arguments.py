"""Arguments of runtimes that read dense memory."""

from __future__ import annotations

import torch

from fx_importer import lower
from fx_importer.calls.argument_values import DenseArguments
from fx_importer.calls.call_signature import read_signature
from fx_importer.engines.xla.xla_program import XLA
from fx_importer.mlir.functions import functions_of


def test_arguments_that_need_gradients_are_detached_in_every_call():
    x, weight = torch.randn(3, 4), torch.nn.Parameter(torch.randn(3, 4))
    module = lower(torch.add, x, weight.detach(), output_type="stablehlo").module
    arguments = DenseArguments(read_signature(functions_of(module)["main"], XLA))
    for _ in range(3):
        found = arguments((x, weight))
        assert [each.data_ptr() for each in found] == [x.data_ptr(), weight.data_ptr()]
        assert not any(each.requires_grad for each in found)
    found, _ = arguments((x.mT.contiguous().mT, weight))
    assert found.is_contiguous()
    assert torch.equal(found, x)

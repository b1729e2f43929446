"""Operators of PyTorch that compiled code calls."""

from collections import Counter

import torch
from torch import nn

from fx_importer.dynamo.torch_compile import backend
from fx_importer.engines.jit import stubs


def test_kernels_that_write_to_given_memory_get_the_buffers_of_the_program(monkeypatch):
    copied: Counter[str] = Counter()
    find = stubs._writing_function

    def found(stub):
        copied[stub.operator] += (writing := find(stub)) is None
        return writing

    monkeypatch.setattr(stubs, "_writing_function", found)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.MaxPool2d(2))
    compiled = torch.compile(model, backend=backend)
    for _ in range(2):  # the memory has values of the first call in the second one
        x = torch.randn(2, 2, 14, 14)
        gradients = []
        for each in (model, compiled):
            given = x.clone().requires_grad_()
            each(given).square().sum().backward()
            gradients.append([given.grad, *(parameter.grad for parameter in model.parameters())])
            model.zero_grad()
        torch.testing.assert_close(gradients[1], gradients[0])
    assert copied == {"aten.convolution_backward.default": 2, "aten.max_pool2d_with_indices_backward.default": 0}

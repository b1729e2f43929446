"""Unbacked sizes that depend only on constants are folded, for every output type."""

import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from fx_importer import lower
from fx_importer.fx_passes.sizes.constant_sizes import fold_constant_sizes


class Greatest(nn.Module):
    """A size that is the maximum of constant positions."""

    def forward(self, x):
        size: Any = (torch.arange(5).max() + 1).item()
        return x.repeat(size, 1) + torch.ones(size, 1)


class Masked(nn.Module):
    """Reads and writes by a constant mask; the second time along a later dimension."""

    def forward(self, x):
        mask = torch.arange(4) % 2 == 0
        written = torch.zeros_like(x)
        written[mask] = x[mask] * 2
        return written, x[:, mask].sum(1)


class LikeInput(nn.Module):
    """Sizes of constants that are made like an input: no graph has more than one batch."""

    def forward(self, x):
        batch = x.new_zeros(x.shape[0], dtype=torch.int64) + torch.ones_like(x, dtype=torch.int64).sum(1)
        number: Any = batch.max().item()
        return torch.zeros(number + 1, 4).index_add(0, batch, x)


class Selected(nn.Module):
    """masked_select with a constant mask, on a tensor of higher rank."""

    def forward(self, x):
        return x.masked_select(torch.arange(4) % 2 == 0) * 2, x.masked_select(torch.ones(4, 4).tril() > 0)


class Diagonal(nn.Module):
    """nonzero of a lifted constant."""

    def __init__(self):
        super().__init__()
        self.eye = torch.eye(3)

    def forward(self, x):
        return torch.nonzero(self.eye) * x


class Written(nn.Module):
    """A size from a constant that is written to in between."""

    def forward(self, x):
        places = torch.arange(4)
        before = places.max().item()
        places[0] = 7
        after = places.max().item()
        return x.expand(before, 4).sum(0), x.expand(after, 4).sum(0)


class Flow(nn.Module):
    """Masks in buffers, and computed from one: reads, writes, indices of true elements, a mask with other indices."""

    def __init__(self):
        super().__init__()
        self.mask = nn.Buffer(torch.tensor([True, False, True, False]))
        self.signs = nn.Buffer(torch.tensor([1.0, -1.0, -1.0, 1.0]), persistent=False)

    def forward(self, x):
        out = torch.empty_like(x)
        first, second = torch.where(self.mask)[0], torch.nonzero(~self.mask).squeeze(1)
        out[:, first] = x[:, self.mask]
        out[:, second] = x[:, ~self.mask] * torch.exp(x[:, first])
        return out, x[:, self.signs > 0], x[:4][self.mask, self.mask]


class Counts(nn.Module):
    """A mask of a buffer that changes with each call."""

    def __init__(self):
        super().__init__()
        self.calls = nn.Buffer(torch.zeros(4))

    def forward(self, x):
        self.calls[0] += 1
        return x[:, self.calls > 1].sum(1)


class Repeated(nn.Module):
    """Elements that are repeated as often as constants say: one number for each, and one for all."""

    def forward(self, x):
        images = torch.repeat_interleave(torch.arange(2), torch.tensor([3, 1]))
        same = images[:, None] == images[None]
        repeated = x.repeat_interleave(torch.tensor([2, 0, 1, 1]), 1), x.repeat_interleave(torch.tensor([2]))
        return torch.where(same, x[:, :1] @ x[:1], 0.0), *repeated, images


MODELS = [
    *((Greatest(), (1, 4)), (Masked(), (4, 4)), (LikeInput(), (3, 4))),
    *((Selected(), (4, 4)), (Diagonal(), (1,)), (Written(), (4,)), (Repeated(), (4, 4))),
]


def is_dynamic(program: ExportedProgram) -> bool:
    return any(re.search(r"\bu\d", str(node.meta.get("val"))) for node in program.graph.nodes)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
@pytest.mark.parametrize(("model", "shape"), MODELS, ids=lambda each: type(each).__name__)
def test_size_of_constants_is_folded(model, shape, output_type):
    x = torch.randn(shape)
    program = torch.export.export(model, (x,))
    assert is_dynamic(program)
    assert not is_dynamic(fold_constant_sizes(program))
    torch.testing.assert_close(lower(program, output_type=output_type).run(x), model(x))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_masks_in_buffers_are_constants(output_type, dynamic):
    x, shapes = torch.randn(5, 4), ({0: torch.export.Dim("n", min=4)},) if dynamic else None
    lowered = lower(Flow(), x, output_type=output_type, dynamic_shapes=shapes)
    x = torch.randn(7, 4) if dynamic else x
    torch.testing.assert_close(lowered.run(x), Flow()(x))


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
def test_a_mask_in_a_buffer_that_changes_is_read_in_each_call(output_type):
    model, x = Counts(), torch.randn(3, 4)
    lowered = lower(Counts(), x, output_type=output_type, mutation="functional")
    for _ in range(3):
        torch.testing.assert_close(lowered.run(x), model(x))


def test_buffers_whose_values_the_module_lacks_are_not_constants():
    lowered = lower(Flow(), torch.randn(5, 4), output_type="torch", weights="args")
    assert re.search(r"\bu\d", str(lowered.module))


def test_size_of_inputs_or_state_stays_unbacked():
    class Of(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = nn.Buffer(torch.arange(3))

        def forward(self, x):
            return x[x > 0], torch.nonzero(self.seen), torch.nonzero(torch.rand(3))

    program = torch.export.export(Of(), (torch.ones(3),))
    assert fold_constant_sizes(program) is program


def test_program_of_static_sizes_is_unchanged():
    program = torch.export.export(nn.ReLU(), (torch.ones(3),))
    assert fold_constant_sizes(program) is program

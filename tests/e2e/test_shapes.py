"""Reshapes, permutations and creation of tensors."""

import torch
import torch.nn.functional as F
from torch import nn

from fx_importer import lower

from .harness import Case, check, normal, table

X = normal(2, 3, 4)


@table(
    Case("reshapes", lambda: (lambda x: (x.view(6, 4), x.reshape(-1, 2), x.flatten(1), x.unflatten(2, (2, 2))), (X,))),
    Case("permutations", lambda: (lambda x: (x.permute(2, 0, 1), x.transpose(0, 2), x.mT, x.movedim(0, 2)), (X,))),
    Case("reshape_of_a_permutation", lambda: (lambda x: x.transpose(1, 2).reshape(2, 12), (X,))),
    Case("unit_axes", lambda: (lambda x: (x[:, None].squeeze(1), x.unsqueeze(-1), x[None].squeeze()), (X,))),
    Case("expansions", lambda: (lambda x: (x[:1].expand(5, -1, -1), x[:, :1].expand_as(x), x.repeat(2, 1, 3)), (X,))),
    Case("repeat_interleave", lambda: (lambda x: x.repeat_interleave(2, dim=1), (X,))),
    Case("cat_and_stack", lambda: (lambda x: (torch.cat([x, x[:, :1]], 1), torch.stack([x, x], -1)), (X,))),
    Case("cat_with_nothing", lambda: (lambda x: torch.cat([x, x[:, :0]], 1), (X,))),
    Case("splits", lambda: (lambda x: (*x.chunk(2, -1), *x.split([1, 2], 1), *x.unbind(0)), (X,))),
    Case("pad", lambda: (lambda x: (F.pad(x, (1, 2), value=3.0), F.pad(x, (0, 0, 1, 1))), (X,))),
    Case("pad_of_booleans", lambda: (lambda x: F.pad(x > 0, (1, 0), value=2.0), (X,))),
    Case("pad_by_less_than_nothing", lambda: (lambda x: (F.pad(x, (-1, 1)), F.pad(x, (1, 0, 1, -2), value=2.0)), (X,))),
    Case("pad_by_reflection", lambda: (lambda x: F.pad(x, (1, 2), mode="reflect"), (X,))),
    Case("pad_by_replication", lambda: (lambda x: F.pad(x, (1, 2), mode="replicate"), (X,))),
    Case("pad_around", lambda: (lambda x: F.pad(x, (1, 1), mode="circular"), (X,))),
    Case("triangles", lambda: (lambda x: (x.tril(), x.triu(1), x.tril(-1)), (X,))),
    Case("windows", lambda: (lambda x: x.unfold(2, 2, 1), (X,))),
    Case("pixel_shuffle", lambda: (nn.PixelShuffle(2), (normal(1, 8, 3, 3),))),
    Case("meshgrid", lambda: (lambda x, y: torch.meshgrid(x, y, indexing="ij"), (normal(2), normal(3)))),
    Case("as_strided", lambda: (lambda x: x.as_strided((2, 2), (4, 1), 1), (X,))),
)
def test_shapes(case, output_type):
    check(case, output_type)


@table(
    Case("ranges", lambda: (lambda x: x + torch.arange(4) + torch.linspace(0, 1, 4), (X,))),
    Case(
        "filled", lambda: (lambda x: (torch.zeros_like(x), torch.full((2,), 3.5), torch.ones(2, 3) * x[0, 0, 0]), (X,))
    ),
    Case("eye", lambda: (lambda x: x[0, :, :3] + torch.eye(3), (X,))),
    Case("empty", lambda: (lambda x: (x[:, :0], torch.zeros(0, 3) + 1), (X,))),
)
def test_creation(case, output_type):
    check(case, output_type)


def test_elementwise_without_elements_of_a_dynamic_size() -> None:
    function = lambda x: (torch.relu(x) * x + 1, x.sigmoid())  # noqa: E731
    size = ({0: torch.export.Dim("n")},)
    lowered = lower(function, torch.zeros(3, 0), output_type="tosa", dynamic_shapes=size)
    assert [result.shape for result in lowered.run(torch.zeros(5, 0))] == [(5, 0), (5, 0)]

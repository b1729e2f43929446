"""Tensors that a model refers to, other than parameters and buffers."""

import torch
from torch import nn

from fx_importer.frontend.undo_writes import attributes_restored, reachable_tensors


class Pair(tuple[object, ...]):
    """A tuple with the methods of another interface, as e3nn's irreducible representations are."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self):
        raise NotImplementedError


class Table(dict[str, object]):
    def values(self):
        raise NotImplementedError

    items = values


def test_containers_with_methods_of_their_own_are_searched():
    model = nn.Module()
    first, second = torch.ones(2), torch.zeros(3)
    vars(model).update(pair=Pair((first, "even")), table=Table(state=second))
    assert {id(tensor) for tensor in reachable_tensors(model)} == {id(first), id(second)}
    with attributes_restored(model):
        first.add_(1)
    assert torch.equal(first, torch.ones(2))

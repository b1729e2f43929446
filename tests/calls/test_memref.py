"""Memref descriptors, and ownership of their memory."""

import ctypes
import gc

import pytest
import torch

from fx_importer.calls import memref
from fx_importer.calls.memref import adopt, dense, describe


def allocate(tensor: torch.Tensor, *, before: int = 0) -> ctypes.Array:
    """Return the descriptor of a copy of ``tensor`` in memory of C, which starts ``before`` bytes before the data."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    address = malloc(ctypes.c_size_t(before + tensor.nbytes + 1))
    ctypes.memmove(address + before, tensor.data_ptr(), tensor.nbytes)
    descriptor = describe(address, tensor.shape)
    descriptor[1] = address + before
    return descriptor


def adopted(*results: tuple[ctypes.Array, torch.dtype]) -> list[torch.Tensor]:
    """Return the tensors of descriptors."""
    return adopt([(*each[:3], each[3 : 3 + (len(each) - 3) // 2], dtype) for each, dtype in results])


@pytest.fixture
def freed(monkeypatch):
    """Return the list of addresses that are freed during the test."""
    gc.collect()  # frees what earlier tests left
    addresses: list[int] = []
    free = memref._free

    def note(address: int) -> None:
        addresses.append(address)
        free(address)

    monkeypatch.setattr(memref, "_free", note)
    return addresses


@pytest.mark.parametrize(
    "shape, strides", [((), []), ((3,), [1]), ((2, 3, 4), [12, 4, 1]), ((2, 0, 4), [0, 4, 1]), ((1, 1), [1, 1])]
)
def test_descriptor_is_dense_and_row_major(shape, strides):
    assert list(describe(64, shape)) == [64, 64, 0, *shape, *strides]


def test_result_is_not_copied_and_is_freed_with_its_last_view(freed):
    descriptor = allocate(torch.arange(6.0).reshape(2, 3), before=16)
    (tensor,) = adopted((descriptor, torch.float32))
    assert tensor.data_ptr() == descriptor[1]
    assert torch.equal(tensor, torch.tensor([[0.0, 1, 2], [3, 4, 5]]))
    view = tensor[1]
    del tensor
    gc.collect()
    assert freed == []
    assert view.tolist() == [3, 4, 5]
    del view
    gc.collect()
    assert freed == [descriptor[0]]


def test_offset_is_in_elements(freed):
    descriptor = allocate(torch.arange(5, dtype=torch.int16))
    descriptor[2], descriptor[3] = 2, 3
    (tensor,) = adopted((descriptor, torch.int16))
    assert tensor.tolist() == [2, 3, 4]


def test_results_in_the_same_memory_are_freed_once(freed):
    whole = allocate(torch.arange(4.0))
    part = describe(whole[0], (2,))
    first, second, third = adopted((part, torch.float32), (whole, torch.float32), (whole, torch.float32))
    first += 10
    second += 20
    assert (first.tolist(), second.tolist(), third.tolist()) == ([10, 11], [20, 21, 22, 23], [0, 1, 2, 3])
    del first, second, third
    gc.collect()
    assert freed == [whole[0]]


def test_empty_result_is_freed_at_once(freed):
    descriptor = allocate(torch.empty(0, 3))
    (tensor,) = adopted((descriptor, torch.float32))
    gc.collect()
    assert tensor.shape == (0, 3)
    assert freed == [descriptor[0]]


def test_dense_values():
    complex_numbers = torch.complex(torch.arange(4.0), torch.ones(4)).reshape(2, 2)
    assert dense(complex_numbers).data_ptr() == complex_numbers.data_ptr()
    for tensor in (complex_numbers.T, complex_numbers.conj(), complex_numbers.imag, complex_numbers.conj().imag):
        taken = dense(tensor)
        assert taken.is_contiguous()
        assert not taken.is_conj()
        assert not taken.is_neg()
        assert torch.equal(taken, tensor)
    assert not dense(torch.ones(2, requires_grad=True)).requires_grad


def test_dense_strides_of_axes_of_size_one():
    assert dense(torch.ones(1, 2)[..., ::2]).stride() == (1, 1)

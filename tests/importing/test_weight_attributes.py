"""Tensors as attributes: bit-exact, without copies, one attribute per storage view."""

import numpy as np
import pytest
import torch

from fx_importer.importing.types import ELEMENT_TYPES, TypeCache, UnknownDtype
from fx_importer.importing.weight_attributes import TensorAttributes, UnimportableTensor, as_array, is_splat
from fx_importer.mlir.bindings import ir, new_context


@pytest.fixture
def weights() -> TensorAttributes:
    context = new_context()
    return TensorAttributes(context, TypeCache(context))


def bits(tensor: torch.Tensor) -> bytes:
    """Return the elements of ``tensor`` in order, as bytes, independently of the package."""
    contiguous = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    return contiguous.reshape(-1).view(torch.uint8).numpy().tobytes()


BASE = torch.arange(-8, 16).reshape(4, 6)
DTYPES = sorted(ELEMENT_TYPES, key=str)


def sample(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.complex(BASE.float(), BASE.float() + 1).to(dtype)
    if dtype == torch.float8_e8m0fnu:
        return BASE.abs().to(torch.uint8).view(dtype)
    return BASE.float().to(dtype) if dtype.is_floating_point else BASE.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_are_bit_exact(dtype):
    tensor = sample(dtype)
    assert as_array(tensor).tobytes() == bits(tensor)


STRIDED = {
    "transposed": BASE.t(),
    "sliced": BASE[1:, ::2],
    "expanded": BASE[0].expand(3, 6),
    "offset": BASE.reshape(-1)[5:],
    "flipped": BASE.flip(0),
    "rank 0": BASE[2, 3],
    "empty": BASE[:0],
    "channels last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "bf16 transposed": BASE.to(torch.bfloat16).t(),
    "conjugated": torch.complex(BASE.float(), BASE.float()).conj(),
    "negated": torch.complex(BASE.float(), BASE.float()).conj().imag,
    "requires grad": torch.rand(3, requires_grad=True),
}


@pytest.mark.parametrize("tensor", STRIDED.values(), ids=STRIDED)
def test_strides_do_not_matter(tensor):
    assert as_array(tensor.detach()).tobytes() == bits(tensor.detach())


def test_contiguous_parameter_is_not_copied():
    parameter = torch.nn.Parameter(torch.rand(1000))
    assert as_array(parameter.detach()).__array_interface__["data"][0] == parameter.data_ptr()


def test_later_in_place_change_is_visible_in_the_module(weights):
    parameter = torch.arange(3.0)
    attribute = weights.attribute(parameter, "w")
    parameter.fill_(1.0)
    module = ir.Module.parse("module {}", weights._context)
    module.operation.attributes["a"] = attribute
    assert '"0x040000000000803F0000803F0000803F"' in str(module)


def test_shared_memory_is_one_attribute(weights):
    tensor = torch.rand(4, 4)
    assert weights.attribute(tensor, "a") == weights.attribute(tensor.view(4, 4), "b")
    assert weights.attribute(tensor, "a") != weights.attribute(tensor.t(), "c")
    assert weights.attribute(tensor, "a") != weights.attribute(tensor.clone(), "d")


@pytest.mark.parametrize(
    "tensor",
    [torch.full((50, 50), 2.5), torch.tensor(3.0), torch.tensor([1.0]).expand(7, 9), torch.zeros(3, dtype=torch.bool)],
    ids=["full", "rank 0", "expanded", "bool"],
)
def test_single_value_is_a_splat(weights, tensor):
    attribute = ir.DenseElementsAttr(weights.attribute(tensor, "w"))
    assert attribute.is_splat


def test_negative_zero_and_nan_are_distinguished():
    assert not is_splat(as_array(torch.tensor([0.0, -0.0, 0.0, 0.0])))
    assert is_splat(as_array(torch.tensor([float("nan")] * 4)))


def test_named_tensor_is_a_resource_and_short_constant_is_dense(weights):
    tensor = torch.arange(5.0)
    assert isinstance(weights.attribute(tensor.clone(), None), ir.DenseElementsAttr)
    assert isinstance(weights.attribute(tensor.clone(), "w"), ir.DenseResourceElementsAttr)
    assert isinstance(weights.attribute(torch.arange(500.0), None), ir.DenseResourceElementsAttr)


@pytest.mark.parametrize(
    "tensor",
    [torch.rand(2, device="meta"), torch._subclasses.FakeTensorMode().from_tensor(torch.rand(2))],
    ids=["meta", "fake"],
)
def test_meta_tensor_is_an_error(weights, tensor):
    with pytest.raises(UnimportableTensor, match="materialize it first"):
        weights.attribute(tensor, "w")


def test_sparse_tensor_is_an_error(weights):
    with pytest.raises(UnimportableTensor, match="densify"):
        weights.attribute(torch.eye(3).to_sparse(), "w")


def test_unknown_dtype_is_named(weights):
    with pytest.raises(UnknownDtype, match="float4_e2m1fn_x2"):
        weights.attribute(torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "w")


def test_attribute_as_numpy_array(weights):
    attribute = ir.DenseElementsAttr(weights.attribute(torch.arange(6).reshape(2, 3).t(), None))
    assert np.array(attribute).tolist() == [[0, 3], [1, 4], [2, 5]]

"""Signatures of functions, and messages for calls that do not fit them."""

import pytest
import torch

from fx_importer.calls.call_signature import ScalarKind, TensorKind, read_signature
from fx_importer.errors import UsageError

TEXT = """
func.func @run(%a: tensor<?x4xf32>, %b: tensor<2xi8>, %c: i64, %d: f64, %e: i1) -> (tensor<complex<f64>>, i1) {
  %z = complex.constant [0.0, 0.0] : complex<f64>
  %r = tensor.from_elements %z : tensor<complex<f64>>
  return %r, %e : tensor<complex<f64>>, i1
}
"""
GOOD = (torch.ones(3, 4), torch.ones(2, dtype=torch.int8), 1, 1.5, True)


@pytest.fixture
def signature(parse):
    return read_signature(parse(TEXT).body.operations[0])


def test_kinds(signature):
    assert signature.name == "run"
    assert signature.arguments[:2] == (
        TensorKind((torch.float32,), (None, 4)),
        TensorKind((torch.int8, torch.uint8), (2,)),
    )
    assert [kind.python for kind in signature.arguments[2:]] == [int, float, bool]
    assert signature.results[0] == TensorKind((torch.complex128,), ())
    assert isinstance(signature.results[1], ScalarKind)


@pytest.mark.parametrize(
    "position, value",
    [
        (0, torch.ones(0, 4)),
        (0, torch.ones(4, 3).T),
        (0, torch.nn.Parameter(torch.ones(1, 4))),
        (1, torch.ones(2, dtype=torch.uint8)),
        (2, -(2**63)),
        (3, 2),
        (3, float("nan")),
    ],
)
def test_valid_arguments(signature, position, value):
    signature.check([value if i == position else good for i, good in enumerate(GOOD)])


class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "position, value, sentence",
    [
        (0, torch.ones(3, 5), "argument 0 has shape [3, 5], but the function takes [any, 4]"),
        (0, torch.ones(4), "argument 0 has shape [4], but the function takes [any, 4]"),
        (0, torch.ones(3, 4).double(), "argument 0 is float64, but the function takes float32"),
        (0, 1.0, "argument 0 is of type float, but the function takes a tensor of float32 with shape [any, 4]"),
        (
            0,
            torch.ones(3, 4, device="meta"),
            "argument 0 is Tensor (torch.strided) on meta, but the function takes de",
        ),
        (
            0,
            torch.ones(3, 4).to_sparse(),
            "argument 0 is Tensor (torch.sparse_coo) on cpu, but the function takes de",
        ),
        (
            0,
            torch.ones(3, 4).as_subclass(Subclass),
            "argument 0 is Subclass (torch.strided) on cpu, but the function takes de",
        ),
        (1, torch.ones(2, dtype=torch.bool), "argument 1 is bool, but the function takes int8 or uint8"),
        (2, 1.0, "argument 2 is of type float, but the function takes an int of 64 bits"),
        (2, True, "argument 2 is of type bool, but the function takes an int of 64 bits"),
        (2, 2**63, "argument 2 is 9223372036854775808, but the function takes an int of 64 bits"),
        (2, torch.tensor(1), "argument 2 is of type Tensor, but the function takes an int of 64 bits"),
        (3, "1", "argument 3 is of type str, but the function takes a float"),
        (4, 1, "argument 4 is of type int, but the function takes a bool"),
    ],
)
def test_invalid_arguments(signature, position, value, sentence):
    with pytest.raises(UsageError) as caught:
        signature.check([value if i == position else good for i, good in enumerate(GOOD)])
    assert sentence in str(caught.value)
    assert ";" not in str(caught.value)


def test_all_invalid_arguments_are_listed(signature):
    with pytest.raises(UsageError) as caught:
        signature.check([None, *GOOD[1:4], None])
    assert str(caught.value) == (
        "'run' cannot be called like this: argument 0 is of type NoneType, but the function takes a tensor of float32 "
        "with shape [any, 4]; argument 4 is of type NoneType, but the function takes a bool"
    )


def test_number_of_arguments(signature):
    with pytest.raises(UsageError, match="^'run' takes 5 arguments, but got 2$"):
        signature.check(GOOD[:2])


def test_types_that_cannot_be_passed(parse):
    module = parse("func.func private @main(%a: tensor<*xf32>, %b: tensor<2xf32>, %c: index) -> !torch.vtensor<[],f32>")
    with pytest.raises(UsageError) as caught:
        read_signature(module.body.operations[0])
    assert str(caught.value).startswith(
        "'main' cannot be run: argument 0 is tensor<*xf32>; argument 2 is index; result 0 is !torch.vtensor<[],f32>."
    )
    assert "output_type='linalg-on-tensors'" in str(caught.value)

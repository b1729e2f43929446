"""Complex numbers in TOSA, on its reference model: arguments and results are complex, the function has pairs."""

import importlib.util

import pytest
import torch
from torch import Tensor, nn

from fx_importer import Manifest, StageFailed, UnsupportedProgramError, UsageError, lower

from .harness import normal

runs = pytest.mark.skipif(
    importlib.util.find_spec("tosa_reference_model") is None, reason="the extra 'tosa' is not installed"
)


class Model(nn.Module):
    """Takes, returns, stores and updates complex tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(normal(3, 3, dtype=torch.complex64))
        self.seen = nn.Buffer(torch.zeros(3, dtype=torch.complex64))

    def forward(self, z: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        self.seen.add_(z.sum(0))
        product = (z @ self.weight) * x
        return product, product.abs(), z, torch.view_as_real(z)


@runs
def test_complex_arguments_results_and_state():
    model, inputs = Model(), (normal(2, 3, dtype=torch.complex64), normal(3, seed=2))
    lowered = lower(model, *inputs, output_type="tosa", mutation="functional", narrow_integers=True)
    function = lowered.manifest.functions["main"]
    arguments = [(each.name, each.type.dtype, each.type.shape, each.passed_as) for each in function.arguments]
    assert arguments == [
        ("seen", "complex64", (3,), "float32"),
        ("z", "complex64", (2, 3), "float32"),
        ("x", "float32", (3,), None),
    ]
    assert [each.passed_as for each in function.results] == ["float32", "float32", None, "float32", None]
    assert Manifest.from_json(lowered.manifest.to_json()) == lowered.manifest
    for caller in (lowered.caller(), lowered.caller(backend="eager")):
        model = Model()
        for _ in range(2):
            torch.testing.assert_close(caller(*inputs), tuple(each.resolve_conj() for each in model(*inputs)))
        torch.testing.assert_close(caller.state["seen"], model.seen)
    with pytest.raises(UsageError, match="the input 'z' is float32, but the program was exported for complex64"):
        lowered.run(inputs[0].real, inputs[1])


@runs
def test_verification_compares_complex_results():
    lowered = lower(lambda z: (z.exp(), torch.fft.fft(z)), normal(4, 6, dtype=torch.complex64), output_type="tosa")
    assert lowered.verify(isolate=False).passed
    assert lowered.verify(normal(4, 6, dtype=torch.complex64, seed=2).conj(), isolate=False).passed


@runs
def test_spectral_filter():
    def filtered(x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x)
        return torch.fft.irfft(spectrum * torch.exp(-1j * torch.arange(33) * 0.1), n=64)

    x = normal(2, 64)
    torch.testing.assert_close(lower(filtered, x, output_type="tosa").run(x), filtered(x))


@runs
def test_matrices_of_long_transforms_are_resources():
    x = normal(2, 211)
    lowered = lower(torch.fft.rfft, x, output_type="tosa")
    torch.testing.assert_close(lowered.run(x), torch.fft.rfft(x), rtol=1e-4, atol=1e-4)
    shapes = sorted(each.type.shape for each in lowered.manifest.constants.values() if each.type.shape)
    assert [each[-1] for each in shapes] == [106, 106]


@runs
def test_branches_take_and_return_complex_numbers():
    def chosen(z: Tensor, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda z: z * 1j, lambda z: z.conj().clone(), (z,))

    z = normal(4, dtype=torch.complex64)
    lowered = lower(chosen, z, torch.ones(2), output_type="tosa")
    for x in (torch.ones(2), -torch.ones(2)):
        torch.testing.assert_close(lowered.run(z, x), chosen(z, x).resolve_conj())


def test_complex128_is_an_error():
    with pytest.raises(UnsupportedProgramError, match=r"z: an input of torch\.complex128, which TOSA does not have"):
        lower(lambda z: z * 2, torch.ones(2, dtype=torch.complex128), output_type="tosa")


@runs
def test_constant_results_are_complex():
    def model(z: Tensor) -> tuple[Tensor, ...]:
        return z[:0].sum(), z[:0].sum(0), torch.tensor([1 + 2j, 3]) * 2

    z = normal(3, 2, dtype=torch.complex64)
    torch.testing.assert_close(lower(model, z, output_type="tosa").run(z), model(z))


def test_cat_of_bools_and_complex_numbers():
    flags, numbers = torch.tensor([True, False]), torch.tensor([1 + 2j, -3j])
    lowered = lower(lambda x, y: torch.cat([x, y]), flags, numbers, output_type="linalg")
    assert torch.equal(lowered.run(flags, numbers), torch.cat([flags, numbers]))


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_parts_that_broadcast_along_dynamic_axes(output_type):
    inputs, sizes = (normal(4, 1), normal(1, 3)), ({0: torch.export.Dim("n")}, {1: torch.export.Dim("m")})
    lowered = lower(torch.complex, *inputs, output_type=output_type, dynamic_shapes=sizes)
    larger = normal(5, 1), normal(1, 6)
    assert torch.equal(lowered.run(*larger), torch.complex(*larger))


def test_selections_of_complex_numbers_in_tosa():
    z = normal(4, 5, dtype=torch.complex64)
    lowered = lower(torch.masked_select, z, z.real > 0, output_type="tosa")
    for mask in (z.real > 0, z.imag > 0, z.real > 9):
        assert torch.equal(lowered.run(z, mask), torch.masked_select(z, mask))


def test_program_is_lowered_again_after_sizes_that_depend_on_values():
    inputs = normal(5, 2, dtype=torch.complex64), torch.tensor([1, 3, 4])
    program = torch.export.export(Split(), inputs)
    for output_type in ("tosa", "stablehlo"):
        with pytest.raises(StageFailed, match="aten.item.default"):
            lower(program, output_type=output_type)
    torch.testing.assert_close(lower(program, output_type="linalg").run(*inputs), Split()(*inputs))


class Split(nn.Module):
    def forward(self, z: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        return torch.tensor_split(z, at)

import pytest
import torch

from fx_importer import lower
from fx_importer.decompositions.vision import VISION
from fx_importer.decompositions.vision.regions import quotient
from testing.torchvision_calls import expected_results, torchvision_calls, torchvision_operators

CALLS, EXPECTED = torchvision_calls(), expected_results()


@pytest.fixture(scope="module", autouse=True)
def operators():
    with torchvision_operators():
        yield


@pytest.mark.parametrize("name", CALLS)
def test_results_are_torchvisions(name: str):
    operator, arguments = CALLS[name]
    results = VISION[f"torchvision::{operator}"](*arguments)
    results = list(results) if isinstance(results, tuple) else [results]
    torch.testing.assert_close(results, EXPECTED[name], rtol=1e-5, atol=2e-5)


def test_quotients_are_rounded_as_in_eager():
    a = torch.tensor([23.0, 10.0, 1.0, 0.0, -7.0, 3e38, 1.0, float("inf"), 1e-40])
    b = torch.tensor([20.0, 7.0, 3.0, 0.0, 9.0, 2.0, 0.0, 2.0, 3.0])
    torch.testing.assert_close(quotient(a, b), a / b, rtol=0, atol=0, equal_nan=True)
    lowered = lower(quotient, a[:5], b[:5], output_type="tosa")
    torch.testing.assert_close(lowered.run(a[:5], b[:5]), a[:5] / b[:5], rtol=0, atol=0, equal_nan=True)


class _Call(torch.nn.Module):
    """A call of an operator of torchvision, whose tensors are inputs."""

    def __init__(self, name: str, rest: tuple):
        super().__init__()
        self.name, self.rest = name, rest

    def forward(self, *tensors):
        return getattr(torch.ops.torchvision, self.name)(*tensors, *self.rest)


ROWS = (
    "roi_align -1 False",
    "gradient of roi_align 2 True",
    "ps_roi_align 2",
    "roi_pool",
    "gradient of roi_pool",
    "gradient of ps_roi_pool",
    "deform_conv2d masked",
    "gradients of deform_conv2d masked",
)


def _program(name: str, dynamic: bool = False) -> tuple[torch.export.ExportedProgram, list[torch.Tensor]]:
    operator, arguments = CALLS[name]
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    boxes = torch.export.Dim("boxes", min=2)
    shapes = tuple({0: boxes} if place else None for place in range(len(tensors))) if dynamic else None
    model = _Call(operator, arguments[len(tensors) :])
    program = torch.export.export(model, tuple(tensors), dynamic_shapes=None if shapes is None else (shapes,))
    return program, tensors


@pytest.mark.slow_rows("^(roi_align -1 False-linalg|ps_roi_align 2-stablehlo)$")
@pytest.mark.in_turn("output_type")
@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
@pytest.mark.parametrize("name", ROWS)
def test_lowered(name: str, output_type: str):
    program, tensors = _program(name)
    results = lower(program, output_type=output_type).run(*tensors)
    results = list(results) if isinstance(results, list | tuple) else [results]
    torch.testing.assert_close(results, EXPECTED[name], rtol=1e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_dynamic_number_of_regions(output_type: str):
    program, tensors = _program("roi_align 2 False", dynamic=True)
    lowered = lower(program, output_type=output_type)
    (expected,) = EXPECTED["roi_align 2 False"]
    for number in (4, 2):
        torch.testing.assert_close(
            lowered.run(tensors[0], tensors[1][:number]), expected[:number], rtol=1e-5, atol=2e-5
        )


@pytest.mark.slow_rows("^(stablehlo|tosa)$")
@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_suppressed_boxes(output_type: str):
    operator, (boxes, scores, threshold) = CALLS["nms 0.1"]
    shapes = ({0: torch.export.Dim("number", min=2)},) * 2
    program = torch.export.export(_Call(operator, (threshold,)), (boxes, scores), dynamic_shapes=(shapes,))
    lowered = lower(program, output_type=output_type)
    torch.testing.assert_close([lowered.run(boxes, scores)], EXPECTED["nms 0.1"])


@pytest.mark.slow_rows("^roi_align -1 False-stablehlo$", "^roi_pool-linalg$")
@pytest.mark.parametrize(
    ("name", "output_type"),
    [
        *(("roi_align -1 False", "linalg"), ("roi_align -1 False", "stablehlo"), ("ps_roi_align -1", "tosa")),
        *(("roi_pool", "linalg"), ("ps_roi_pool", "stablehlo")),
    ],
)
def test_dynamic_size_of_images(name: str, output_type: str):
    operator, (images, boxes, *rest) = CALLS[name]
    shapes = ({2: torch.export.Dim("height", min=2), 3: torch.export.Dim("width", min=2)}, None)
    program = torch.export.export(_Call(operator, tuple(rest)), (images, boxes), dynamic_shapes=(shapes,))
    lowered = lower(program, output_type=output_type)
    for inputs in (images, images[:, :, :4, :3]):
        results, expected = lowered.run(inputs, boxes), VISION[f"torchvision::{operator}"](inputs, boxes, *rest)
        torch.testing.assert_close(results, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_deformable_convolution_of_no_images(output_type: str):
    operator, (images, weight, offset, mask, bias, *rest) = CALLS["deform_conv2d masked"]
    tensors = (images[:0], weight, offset[:0], mask[:0], bias)
    program = torch.export.export(_Call(operator, tuple(rest)), tensors)
    expected = VISION[f"torchvision::{operator}"](*tensors, *rest)
    torch.testing.assert_close(lower(program, output_type=output_type).run(*tensors), expected)

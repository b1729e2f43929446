"""Triton kernels: a call in every output type, whose kernel triton interprets on the CPU and compiles for GPUs."""

from __future__ import annotations

import json

import pytest
import torch

import fx_importer
from fx_importer import UsageError, compile_kernels, lower
from fx_importer.cli import main

triton = pytest.importorskip("triton", reason="the extra 'triton' is not installed")

import triton.language as tl  # noqa: E402

from fx_importer.manifest import OperatorStub  # noqa: E402
from tests.triton_kernels import CASES, STRICT, add_kernel, launched_in_a_branch  # noqa: E402

TARGETS = ("cuda:sm_90", "rocm:gfx942")
pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance\\(treespec, LeafSpec\\):FutureWarning")


def lowered_case(case: str, output_type: str) -> fx_importer.Lowered:
    model, inputs, _ = CASES[case]
    return lower(model, *inputs, output_type=output_type, strict=case in STRICT)


@pytest.mark.slow_rows(
    "tosa",
    "stablehlo",
    "autotuned_matmul",
    "(softmax|layer_norm|two_kernels)$",
    unless="linalg|operator|in_a_branch|scaled_in_place",
)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_a_kernel_computes_what_pytorch_does(output_type, case):
    _, inputs, expected = CASES[case]
    lowered = lowered_case(case, output_type)
    torch.testing.assert_close(lowered.run(*inputs), expected(*inputs))
    assert lowered.verify(*inputs, backends=["jit"])


def test_the_declaration_says_how_a_kernel_is_launched():
    ((name, stub),) = lowered_case("autotuned_matmul", "raw").operator_stubs.items()
    assert (name, stub.operator) == ("matmul_kernel", "triton.tests.triton_kernels.matmul_kernel")
    assert stub.kernel is not None
    assert stub.kernel.parameters == ("a", "b", "c", "m", "n", "k")
    assert stub.kernel.writes == ("c",)
    first, second = stub.kernel.variants
    assert first.constants == {"rows": 16, "columns": 16, "depth": 16, "activation": "leaky_relu"}
    assert (second.num_warps, second.num_stages) == (4, 2)
    assert stub.arguments[:2] == ((3, 3, 1), (2, 2, 1))


@triton.autotune(
    configs=[triton.Config({"block": 256}, num_warps=8, num_ctas=2), triton.Config({"block": 128}, maxnreg=64)],
    key=["n"],
)
@triton.jit
def tuned_double(x, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def doubled(x):
    out = torch.empty_like(x)
    tuned_double[lambda chosen: (triton.cdiv(x.numel(), chosen["block"]),)](x, out, x.numel())
    return out


def test_options_of_configurations_are_passed_to_the_compiler():
    lowered = lower(doubled, torch.randn(500), output_type="raw", strict=True)
    (stub,) = lowered.operator_stubs.values()
    assert stub.kernel is not None
    assert [each.options for each in stub.kernel.variants] == [
        {"num_warps": 8, "num_stages": 3, "num_ctas": 2},
        {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": 64},
    ]
    assert OperatorStub.from_json(stub.to_json()).kernel == stub.kernel
    first, second = compile_kernels(lowered, "cuda:sm_90")
    assert (first.num_ctas, second.num_ctas) == (2, 1)
    assert ".maxnreg 64" in second.assembly
    entry = second.assembly.partition(".entry")[2].partition(")")[0]
    assert (second.scratch, entry.count(".param")) == (0, len(second.parameters) + 2)
    assert ".maxnreg" not in first.assembly


def doubled_in_part(x, count):
    out = torch.zeros_like(x)
    launch = add_kernel[lambda chosen: (triton.cdiv(int(count.sum()), chosen["block"]),)]
    launch(x, x, out, x.numel(), block=128)  # type: ignore[arg-type]
    return out


def test_a_grid_that_values_decide_is_an_operand():
    x = torch.randn(300)
    lowered = lower(doubled_in_part, x, torch.tensor([100, 100]), output_type="linalg-on-tensors", strict=True)
    for blocks, count in ((1, [60, 68]), (2, [100, 100]), (3, [200, 100])):
        expected = torch.where(torch.arange(300) < blocks * 128, 2 * x, 0)
        torch.testing.assert_close(lowered.run(x, torch.tensor(count)), expected)


def test_sizes_of_the_grid_are_operands_where_they_are_dynamic():
    model, (x, y), _ = CASES["operator"]
    shapes = ({0: torch.export.Dim("n", min=2)},) * 2
    lowered = lower(model, x, y, output_type="linalg-on-tensors", dynamic_shapes=shapes)
    (stub,) = lowered.operator_stubs.values()
    assert stub.arguments[0] != (2, 1, 1)
    torch.testing.assert_close(lowered.run(x[:7], y[:7]), x[:7] + y[:7])


def test_kernels_compile_after_they_were_interpreted():
    lowered = lowered_case("causal_attention", "tosa")
    lowered.run(*CASES["causal_attention"][1])
    (kernel,) = compile_kernels(lowered, "cuda:sm_90")
    assert (kernel.grid, kernel.parameters["length"]) == ((3, 2, 1), 37)
    assert ".target sm_90" in kernel.assembly
    assert kernel.shared > 0
    assert kernel.binary.startswith(b"\x7fELF")


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_kernels_compile_for_a_target(case, target):
    lowered = lowered_case(case, "raw")
    kernels = compile_kernels(lowered, target)
    stubs = lowered.operator_stubs.values()
    assert len(kernels) == sum(len(each.kernel.variants) for each in stubs if each.kernel is not None) > 0
    assert all(each.name in each.assembly and each.binary for each in kernels)


def test_the_command_writes_machine_code_of_a_saved_module(tmp_path, capsys, monkeypatch):
    lowered_case("vector_add", "stablehlo").save(tmp_path / "add.mlirbc")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["fx-importer", "kernels", "add.mlirbc", "--target", "rocm:gfx942", "-o", "out"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (None, 0)
    assert capsys.readouterr().out == "add_kernel, variant 0: 0 bytes of shared memory, 4 warps\n"
    found = json.loads((tmp_path / "out" / "kernels.json").read_text())
    (kernel,) = found["kernels"]
    assert kernel["grid"] == [4, 1, 1]
    assert all((tmp_path / "out" / name).stat().st_size for name in kernel["files"])


@pytest.mark.parametrize(
    "target, message", [("cuda:90", "no target 'cuda:90'"), ("rocm:gfx1", "triton does not compile the kernel")]
)
def test_a_target_that_there_is_not_is_an_error(target, message):
    with pytest.raises(UsageError, match=message):
        compile_kernels(lowered_case("vector_add", "raw"), target)


def test_a_launch_that_only_strict_export_traces_says_so():
    model, inputs, _ = CASES["vector_add"]
    with pytest.raises(fx_importer.ExportError, match="pass strict=True, or launch torch.library.wrap_triton"):
        lower(model, *inputs, output_type="raw")


def test_a_launch_in_a_branch_that_export_would_lose_is_an_error():
    inputs = CASES["in_a_branch"][1]
    with pytest.raises(fx_importer.ExportError, match="launched in a branch"):
        lower(launched_in_a_branch, *inputs, output_type="raw", strict=True)


def test_a_kernel_of_another_process_is_named(monkeypatch):
    model, inputs, _ = CASES["vector_add"]
    lowered = lower(model, *inputs, output_type="linalg-on-tensors", strict=True)
    monkeypatch.setattr("fx_importer.engines.jit.stubs.KNOWN_KERNELS", {})
    with pytest.raises(UsageError, match=r"launches triton\.tests\.triton_kernels\.add_kernel"):
        lowered.run(*inputs)

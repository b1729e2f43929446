"""IREE for GPUs: compiled without a device, and run on Vulkan where this machine has one."""

from __future__ import annotations

import copy
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fx_importer import Lowered, UsageError, lower
from fx_importer.engines import IreeBackend
from fx_importer.engines.iree.iree_compiler import warn_of_unverified_code
from fx_importer.engines.iree.iree_targets import iree_target
from fx_importer.errors import UnverifiedCodeWarning
from tests.engines import vulkan_checks

pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")


@pytest.mark.slow_rows("rocm")
@pytest.mark.parametrize("target", ["cuda:sm_90", "rocm:gfx942", "metal"])
def test_a_product_compiles_without_a_device(target, tmp_path):
    model = torch.nn.Linear(256, 256, bias=False).to(torch.float16).eval()
    x = torch.randn(64, 256, dtype=torch.float16)
    compiled = lower(model, x, output_type="linalg-on-tensors").compile(target)
    assert compiled.dispatches == 1
    if target != "metal":
        assert compiled.matrix_instructions > 0
        assert compiled.vector_loads > 0
    compiled.save(tmp_path / "model.vmfb", tmp_path / "kernels")
    assert (tmp_path / "model.vmfb").read_bytes() == compiled.code
    assert {each.name for each in (tmp_path / "kernels").iterdir()} == set(compiled.kernels) != set()


@pytest.fixture(scope="module")
def small() -> Lowered:
    return lower(torch.nn.Linear(4, 2).eval(), torch.ones(3, 4), output_type="linalg-on-tensors")


@pytest.mark.slow_rows("^(x86-64-v3|riscv32)-")
@pytest.mark.parametrize("target, machine", [("riscv32", 243), ("cortex-m4", 40), ("aarch64", 183), ("x86-64-v3", 62)])
def test_a_c_module_and_its_kernels_compile_for_other_processors(small, target, machine, tmp_path):
    compiled = small.compile(target, kind="c")
    assert b"EMITC_IMPLEMENTATION" in compiled.code
    compiled.save(tmp_path / "model.h")
    assert {path.name for path in tmp_path.iterdir()} == {"model.h", "model_kernels.o", "model_kernels.h"}
    assert int.from_bytes((tmp_path / "model_kernels.o").read_bytes()[18:20], "little") == machine  # e_machine of ELF


def test_a_baseline_runs_here(small):
    x = torch.randn(3, 4)
    backend = IreeBackend(target="cpu:x86-64" if platform.machine() == "x86_64" else "cpu:aarch64")
    assert (small.caller(backend=backend)(x) - small.run(x)).abs().max() < 1e-5
    other = "aarch64" if platform.machine() == "x86_64" else "x86-64"
    with pytest.raises(UsageError, match=f"does not run code for '{other}'. Compiling for it is possible here"):
        small.caller(backend=IreeBackend(target=other))(x)


@pytest.mark.parametrize(
    "target, kind, message",
    [
        ("cortex-m4", "vmfb", r"'cortex-m4' is a microcontroller.*compile\('cortex-m4', kind='c'\)"),
        ("cuda:sm_80", "static", "object code for a CPU, and 'cuda:sm_80' is a GPU"),
        ("x86-64", "elf", "kind='elf'.*'vmfb', 'static', 'c'"),
        ("cpu:pentium", "vmfb", "no CPU 'pentium' for IREE: x86-64, x86-64-v2"),
    ],
)
def test_a_kind_that_a_target_lacks(small, target, kind, message):
    with pytest.raises(UsageError, match=message):
        small.compile(target, kind)


def test_attention_of_stablehlo_reaches_the_matrix_units():
    q = torch.randn(1, 2, 64, 64, dtype=torch.bfloat16)
    lowered = lower(torch.nn.functional.scaled_dot_product_attention, q, q, q, output_type="stablehlo")
    compiled = lowered.compile("cuda:sm_90")
    assert compiled.matrix_instructions > 0
    assert all(b".f64" not in text for name, text in compiled.kernels.items() if name.endswith(".ptx"))


def _pooled(image: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool2d(image, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("model", [torch.nn.Conv2d(4, 4, 3, 2), _pooled], ids=["convolution", "max_pool"])
@pytest.mark.parametrize("output_type", ["torch", "tosa", "linalg-on-tensors", "stablehlo"])
def test_16_bit_windows_on_cuda_are_a_warning(output_type, model, dtype):
    model = copy.deepcopy(model).to(dtype).eval() if isinstance(model, torch.nn.Module) else model
    lowered = lower(model, torch.randn(1, 4, 9, 9).to(dtype), output_type=output_type)
    with pytest.warns(UnverifiedCodeWarning, match=r"'cuda:sm_90' is unverified.*first at .*\.py:\d+"):
        warn_of_unverified_code(lowered.module, iree_target("cuda:sm_90"))
    warn_of_unverified_code(lowered.module, iree_target("rocm:gfx942"))  # warnings are errors here


def test_compile_warns_of_unverified_code():
    model, x = torch.nn.Conv2d(4, 4, 1).to(torch.bfloat16).eval(), torch.randn(1, 4, 8, 8, dtype=torch.bfloat16)
    with pytest.warns(UnverifiedCodeWarning, match="Verify it on the device"):
        lower(model, x, output_type="linalg-on-tensors").compile("cuda:sm_80")
    lower(model.float(), x.float(), output_type="linalg-on-tensors").compile("cuda:sm_80")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, str | None]:
    """Return why each check that is a test of this session fails, or None, by name."""
    if not any(Path("/usr/share/vulkan/icd.d").glob("*.json")):
        pytest.skip("no device of Vulkan: apt-get install mesa-vulkan-drivers")
    rows = {item.name.partition("[")[2].removesuffix("]") for item in request.session.items}
    command = [sys.executable, "-m", "tests.engines.vulkan_checks", *sorted(rows & vulkan_checks.CHECKS.keys())]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.slow_rows(unless="^check_(tokens|state_stays_on_the_device|an_integer_beyond_32_bits)$")
@pytest.mark.parametrize("check", vulkan_checks.CHECKS)
def test_on_a_device_of_vulkan(outcomes, check):
    assert outcomes[check] is None


@pytest.mark.parametrize(
    "target, message",
    [
        ("cuda:90", "no target 'cuda:90': accepted are cpu, cuda:sm_90"),
        ("tpu", "no target 'tpu'"),
        ("vulkan:nothing", "does not know the architecture of the target 'vulkan:nothing'"),
        ("cuda:sm_999", "does not know the architecture of the target 'cuda:sm_999'"),
        ("rocm:gfx1", "does not know the architecture of the target 'rocm:gfx1'"),
    ],
)
def test_a_target_that_there_is_not_is_named(target, message):
    lowered = lower(torch.nn.ReLU(), torch.ones(3), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match=message):
        lowered.compile(target)


def test_a_device_that_is_not_there_is_named():
    lowered = lower(torch.nn.ReLU(), torch.ones(3), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match="this machine has no device for 'cuda:sm_80'"):
        lowered.caller(backend=IreeBackend(target="cuda:sm_80"))(torch.ones(3))

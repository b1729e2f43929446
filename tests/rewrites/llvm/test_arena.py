"""Buffers in one block of memory."""

import gc
import re
from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fx_importer import lower
from fx_importer.engines.jit import jit_backend
from fx_importer.mlir.functions import function_named
from fx_importer.mlir.module_contents import copy_module
from fx_importer.pipelines.llvm import BUFFERIZE, FUSE, LLVM
from fx_importer.pipelines.runner import run_stage
from fx_importer.rewrites.llvm.arena import ARENA, PLACED_RESULTS, SLOTS, place_results, plan_arena, plan_slots
from fx_importer.rewrites.llvm.entry_point import read_fact

_PLANS = (plan_arena, plan_slots, place_results)
_BUFFERS = replace(BUFFERIZE, passes=tuple(step for step in BUFFERIZE.passes if step not in _PLANS))


def _program(x):
    first = torch.cumsum(x, 0)
    second = torch.cumsum(first.flip(0), 1)
    third = torch.cumsum(second.flip(1), 0)
    return third.sum(1), second + first


def test_buffers_that_are_not_used_together_overlap():
    lowered = lower(_program, torch.randn(64, 64), output_type="linalg-on-tensors")
    module = copy_module(lowered.module.operation)
    for stage in (FUSE, _BUFFERS):
        run_stage(stage, module)
    before = str(module).count("memref.alloc")
    plan_arena(module.operation)
    size = read_fact(module, ARENA)
    assert module.operation.verify()
    after = str(module).count("memref.alloc")
    assert after < before
    assert size < (before - after) * 64 * 64 * 4


def test_calls_use_the_memory_again_and_results_do_not():
    lowered = lower(_program, torch.randn(64, 64), output_type="linalg-on-tensors")
    caller = lowered.caller()
    inputs = [torch.randn(64, 64) for _ in range(3)]
    results = [caller(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        for found, exact in zip(result, _program(x.double()), strict=True):
            assert (found - exact).abs().max() <= 1e-4 * exact.abs().max()


def test_buffers_of_dynamic_size_keep_their_memory_between_calls():
    rows = torch.export.Dim("rows", max=4096)
    lowered = lower(_program, torch.randn(64, 64), dynamic_shapes=({0: rows},), output_type="linalg-on-tensors")
    module = copy_module(lowered.module.operation)
    for stage in (FUSE, _BUFFERS):
        run_stage(stage, module)
    function = function_named(module, "main")
    before = str(function).count("memref.alloc(")
    plan_slots(module.operation)
    count = read_fact(module, SLOTS)
    assert module.operation.verify()
    after = str(function).count("memref.alloc(")
    assert 0 < count < before - after

    caller = lowered.caller()
    results: list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]] = []
    for rows_of_call in (64, 100, 7, 1, 64, 1024, 1000):
        x = torch.randn(rows_of_call, 64)
        results.append((x, caller(x)))
    for x, result in results:
        for found, exact in zip(result, _program(x.double()), strict=True):
            assert (found - exact).abs().max() <= 1e-4 * exact.abs().max()


def test_results_in_another_shape_than_their_buffers_are_new_tensors_of_the_caller():
    x = torch.randn(4, 6)
    lowered = lower(lambda x: (x.sum(0, keepdim=True).flatten(), x.exp().reshape(24)), x, output_type="linalg")
    module = copy_module(lowered.module.operation)
    for stage in (FUSE, _BUFFERS):
        run_stage(stage, module)
    function = function_named(module, "main")
    assert "collapse_shape" in str(function)
    place_results(module.operation)
    assert read_fact(module, PLACED_RESULTS) == (0, 1)
    assert module.operation.verify()
    torch.testing.assert_close(lowered.run(x), (x.sum(0), x.exp().reshape(24)))


def test_entry_point_returns_nothing_however_many_results_it_has():
    """LLVM takes a time quadratic in the number of values that a function returns."""
    rows, x = torch.export.Dim("rows", max=64), torch.randn(4, 6)

    def program(x):  # results of static and of dynamic size, of one byte, views, scalars, and one that is an argument
        scaled = x * 2
        return *(x + i for i in range(8)), x > 0, scaled, scaled.flatten(), x.amax(0), x.shape[0], x

    lowered = lower(program, x, dynamic_shapes=({0: rows},), output_type="linalg")
    module = copy_module(lowered.module.operation)
    for stage in LLVM.stages:
        run_stage(stage, module)
    heads = re.findall(
        r"llvm.func (internal )?@(main|_mlir_ciface_main|kernel_\w+)\(.*?\)( -> \S+)?( attributes .*)? {", str(module)
    )
    assert {("internal ", "main", ""), ("", "_mlir_ciface_main", "")} < {head[:3] for head in heads}
    assert all(linkage for linkage, name, *_ in heads if name.startswith("kernel"))
    for size in (4, 1, 7):
        x = torch.randn(size, 6)
        torch.testing.assert_close(lowered.run(x), program(x), rtol=0, atol=0)


def test_memory_of_slots_is_freed_with_its_function_even_where_tensors_are_fake(monkeypatch):
    freed: list[int] = []
    free = jit_backend.free
    monkeypatch.setattr(jit_backend, "free", lambda address: (freed.append(address), free(address)))
    rows = torch.export.Dim("rows", max=4096)
    caller = lower(_program, torch.randn(64, 64), dynamic_shapes=({0: rows},), output_type="linalg").caller()
    caller(torch.randn(64, 64))
    with FakeTensorMode():
        del caller
        gc.collect()
    assert freed
    assert all(freed)

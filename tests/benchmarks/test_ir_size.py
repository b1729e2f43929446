"""Counts of operations in small programs: none grew since benchmarks/module_size/counts.json was written."""

from dataclasses import asdict

import pytest
import torch

from benchmarks.module_size.counts import Counts, count, undecided
from benchmarks.module_size.models import MODELS
from benchmarks.module_size.page import LARGER, OURS, OUTPUT_TYPES, PAGE, UNDECIDED, larger, read, text_of
from benchmarks.module_size.programs import PROGRAMS
from fx_importer import lower
from fx_importer.mlir.bindings import ir, load_dialects, new_context

STORED = read()


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_count_grew(name: str):
    model, inputs = PROGRAMS[name].build()
    program = torch.export.export(model, inputs)
    for output_type in OUTPUT_TYPES:
        module = lower(program, output_type=output_type).module
        now = asdict(count(module))
        stored = asdict(STORED["programs"][name][output_type][OURS])
        grown = {key: (stored[key], number) for key, number in now.items() if number > stored[key]}
        assert not grown, f"{output_type}: python -m benchmarks.ir_size --only {name} --show"
        assert undecided(module).keys() <= UNDECIDED[output_type].keys()


def test_every_program_and_model_is_stored():
    assert [list(STORED[table]) for table in ("programs", "models")] == [list(PROGRAMS), list(MODELS)]


def test_larger_modules_have_reasons():
    assert larger(STORED) == set(LARGER)


def test_page_has_the_stored_counts():
    assert PAGE.read_text(encoding="utf-8") == text_of(STORED)


def test_counts():
    context = new_context()
    load_dialects(context)
    module = ir.Module.parse(
        """func.func @main(%x: tensor<2xf32>) -> tensor<1x2xf32> {
        %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
        %b = stablehlo.constant dense<1.0> : tensor<2xf32>
        %c = stablehlo.sqrt %a : tensor<2xf32>
        %d = stablehlo.add %c, %b : tensor<2xf32>
        %e = stablehlo.add %d, %x : tensor<2xf32>
        %f = stablehlo.convert %e : (tensor<2xf32>) -> tensor<2xf64>
        %g = stablehlo.convert %f : (tensor<2xf64>) -> tensor<2xf32>
        %h = stablehlo.reshape %g : (tensor<2xf32>) -> tensor<1x2xf32>
        return %h : tensor<1x2xf32> }""",
        context,
    )
    assert count(module) == Counts(operations=8, undecided=2, casts=2, moves=1, constant_bytes=12)
    assert undecided(module) == {"stablehlo.sqrt": 1, "stablehlo.add": 1}

"""Passes before the compilers of engines: listed by the record, and seen by dumps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fx_importer import lower
from fx_importer.engines import all_engines
from fx_importer.pipelines import RewriteStep, parse_steps
from fx_importer.pipelines.pipeline_parser import is_known
from tests.engines.test_engine_table import needs_xla

PIPELINES = [
    pytest.param(engine.pipeline(output_type), id=f"{engine.name}-{output_type.value}")
    for engine in all_engines().values()
    for output_type in engine.accepts
    if engine.pipeline is not None
]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_passes_have_a_text_form(pipeline):
    for stage in pipeline.stages:
        assert "".join(map(str, parse_steps(str(stage)))) == "".join(map(str, stage.passes))
        assert all(is_known(step) for step in stage.passes if isinstance(step, RewriteStep))


@needs_xla
def test_dumps_show_the_pipeline(tmp_path: Path):
    x = torch.ones(1, 3, 8, 8)
    lowered = lower(torch.nn.Conv2d(3, 4, 3), x, output_type="stablehlo", dump_ir="layouts", dump_dir=tmp_path)
    assert not list(tmp_path.rglob("*.mlir"))
    lowered.caller(backend="xla")
    before, after = (path.read_text() for path in sorted(tmp_path.rglob("*.mlir"), reverse=True))
    assert "stablehlo.transpose" in after
    assert "stablehlo.transpose" not in before

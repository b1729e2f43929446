"""The output type ``npu``: TOSA with the NPU's attributes."""

from __future__ import annotations

from fx_importer import OutputType, Pipeline
from npu_plugin.passes import mark_vector_operations


def with_lanes(pipeline: Pipeline) -> Pipeline:
    return pipeline.before("contract", mark_vector_operations)


OutputType.define("npu", base="tosa", pipeline=with_lanes)

"""Targets: what the record of an output type says agrees with its pipeline and with the table of backends."""

import pytest

from fx_importer import pipelines
from fx_importer.engines import default_engine, engines_for
from fx_importer.options import Contract, LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines.contracts import contract
from fx_importer.targets import EXECUTABLE, TARGETS, Target, target_for


@pytest.fixture
def npu():
    yield OutputType.define("npu", base="tosa", allows={"npu", "tosa"})
    OutputType.forget("npu")


def test_every_output_type_has_a_target():
    assert list(TARGETS) == list(OutputType)
    assert all(target.output_type is output_type for output_type, target in TARGETS.items())


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.output_type.value)
@pytest.mark.parametrize("policy", Contract, ids=lambda policy: policy.value)
def test_pipeline_ends_with_the_contract(target: Target, policy: Contract):
    stages = target.pipeline(LoweringOptions(contract=policy)).stages
    if target.contract is None:
        assert target.output_type is OutputType.RAW
        assert not stages
    else:
        expected = contract(target.contract, policy)
        assert stages[-1].name == expected.name
        assert stages[-1].passes[:1] == expected.passes  # TOSA's validator follows


@pytest.mark.parametrize("output_type", TARGETS, ids=lambda output_type: output_type.value)
def test_default_engine_is_first(output_type: OutputType):
    assert default_engine(output_type) in (None, *engines_for(output_type)[:1])


def test_executable_output_types():
    assert EXECUTABLE == (OutputType.LINALG_ON_TENSORS, OutputType.TOSA, OutputType.STABLEHLO)


def test_user_defined_output_type_inherits(npu: OutputType):
    target = target_for(npu)
    assert engines_for(npu) == engines_for(OutputType.TOSA)
    assert default_engine(npu) is default_engine(OutputType.TOSA)
    assert target.contract == pipelines.Dialects("npu", frozenset(("npu", "tosa")))
    assert (
        str(target.pipeline(LoweringOptions()).stages[-1]) == "builtin.module(fx-importer-check-npu-contract{npu,tosa})"
    )

"""OutputType and its parser."""

from enum import Enum

import pytest
from torch_mlir.compiler_utils import OutputType as PeersOutputType

from fx_importer import OutputType, UsageError


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("raw", OutputType.RAW),
        ("Torch", OutputType.TORCH),
        ("TOSA", OutputType.TOSA),
        ("linalg-on-tensors", OutputType.LINALG_ON_TENSORS),
        ("linalg_on_tensors", OutputType.LINALG_ON_TENSORS),
        ("LINALG_ON_TENSORS", OutputType.LINALG_ON_TENSORS),
        ("LinalgOnTensors", OutputType.LINALG_ON_TENSORS),
        ("linalg", OutputType.LINALG_ON_TENSORS),
        ("stablehlo", OutputType.STABLEHLO),
        ("StableHLO", OutputType.STABLEHLO),
        ("stable-hlo", OutputType.STABLEHLO),
        (OutputType.TOSA, OutputType.TOSA),
    ],
    ids=str,
)
def test_every_usual_spelling_is_accepted(spelling, expected):
    assert OutputType.get(spelling) is expected


@pytest.mark.parametrize("member", PeersOutputType, ids=str)
def test_torch_mlirs_own_members_are_accepted(member):
    assert OutputType.get(member).name == member.name


class Other(Enum):
    LLVM = 1


@pytest.mark.parametrize("spelling", ["llvm", "", "tosa2", 3, None, Other.LLVM], ids=str)
def test_invalid_output_type_lists_the_accepted(spelling):
    with pytest.raises(UsageError) as error:
        OutputType.get(spelling)
    for member in OutputType:
        assert f"'{member.value}'" in str(error.value)
    assert isinstance(error.value, ValueError)


def test_is_indexed_by_name_as_an_enumeration():
    assert OutputType["TOSA"] is OutputType.TOSA
    assert list(OutputType.__members__.values()) == list(OutputType)
    assert set(OutputType.__members__) == {each.name for each in PeersOutputType}
    assert list(reversed(OutputType)) == list(OutputType)[::-1]
    with pytest.raises(KeyError):
        OutputType["tosa"]

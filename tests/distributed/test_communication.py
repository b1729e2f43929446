"""Groups of devices in the notations of XLA, and the bytes that each device sends."""

from __future__ import annotations

import pytest

from fx_importer.distributed import Mesh
from fx_importer.distributed.communication import Collective, of_hlo
from fx_importer.errors import UsageError

MESH = Mesh.get("dp=2,tp=4")


@pytest.mark.parametrize(
    "line, expected",
    [
        (
            "%a = f32[4,8]{1,0} all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add",
            Collective("all_reduce", "f32[4,8]", 4, ("tp",), 1, 128),
        ),
        (
            "%a = bf16[8,8]{1,0} all-gather(%x), replica_groups=[4,2]<=[2,4]T(1,0), dimensions={0}",
            Collective("all_gather", "bf16[8,8]", 2, ("dp",), 1, 64),
        ),
        (
            "%a = s8[2] reduce-scatter(%x), replica_groups=mesh['a'=2,'b'=4] {'b'}, dimensions={0}",
            Collective("reduce_scatter", "s8[2]", 4, ("tp",), 1, 8),
        ),
        (
            "%a = pred[6] collective-permute(%x), source_target_pairs={{0,1},{1,0}}",
            Collective("collective_permute", "pred[6]", 2, None, 1, 6),
        ),
        (
            "%a = (c64[2], c64[2]) all-to-all(%x), replica_groups=mesh['a'=1,'b'=8], device_ids=([2,4]T(1,0)) {'b'}",
            Collective("all_to_all", "c64[2] c64[2]", 8, ("dp", "tp"), 1, 32),
        ),
    ],
)
def test_a_line_of_hlo(line: str, expected: Collective):
    assert of_hlo(f"HloModule m\n  {line}\n", MESH).collectives == (expected,)


def test_bytes_of_the_ring_algorithms():
    sent = {
        kind: Collective(kind, "f32[10]", 4, None, 3, 40).sent
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute")
    }
    expected = {"all_reduce": 180, "all_gather": 360, "reduce_scatter": 90, "all_to_all": 90, "collective_permute": 120}
    assert sent == expected
    assert Collective("all_reduce", "f32[10]", 1, None, 3, 40).sent == 0


def test_an_unknown_notation():
    with pytest.raises(UsageError, match="replica_groups=<3>"):
        of_hlo("%a = f32[4] all-reduce(%x), replica_groups=<3>", MESH)

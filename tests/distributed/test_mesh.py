"""Meshes: their text form, and the groups of devices along axes."""

import pytest

from fx_importer.distributed import Mesh
from fx_importer.errors import UsageError


def test_groups_along_axes():
    mesh = Mesh.get("dp=2, tp=3")
    assert (str(mesh), mesh.size) == ("dp=2,tp=3", 6)
    assert mesh.groups(("tp",)) == ((0, 1, 2), (3, 4, 5))
    assert mesh.groups(("dp",)) == ((0, 3), (1, 4), (2, 5))
    assert mesh.groups(("dp", "tp")) == ((0, 1, 2, 3, 4, 5),)


@pytest.mark.parametrize(
    "text, ranks, axes",
    [
        ("dp=2,tp=3", [3, 4, 5], ("tp",)),
        ("dp=2,tp=3", [1, 4], ("dp",)),
        ("dp=2,tp=3", [5], ()),
        ("dp=2,tp=3", [0, 1], None),
        ("dp=2,tp=3", [2, 1, 0], None),
        ("a=2,b=2,c=2", [1, 3, 5, 7], ("a", "b")),
        ("a=1,b=2", [0, 1], ("b",)),
    ],
)
def test_axes_of_a_group_of_one_rank(text: str, ranks: list[int], axes: "tuple[str, ...] | None"):
    assert Mesh.get(text).axes_of(ranks) == axes


@pytest.mark.parametrize("given", ["", "tp", "tp=0", "tp=2;dp=2", "tp=2,tp=2", "4", 4])
def test_what_is_no_mesh(given: object):
    with pytest.raises(UsageError, match="is not a mesh"):
        Mesh.get(given)

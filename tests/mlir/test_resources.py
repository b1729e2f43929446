"""A ``dense_resource`` is read without a copy, whether this package made it or it was parsed from bytecode."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fx_importer.mlir import resources
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.mlir.resources import resource, resource_bytes


@pytest.mark.parametrize("count", [4, 1024])
def test_aliased_resource_is_not_copied(count: int):
    data = np.arange(count, dtype=np.float32)
    type_ = ir.RankedTensorType.get([count], ir.F32Type.get(context := new_context()), loc=ir.Location.unknown(context))
    shared = resource(data, "w", type_)
    other = ir.DenseResourceElementsAttr.get_from_buffer(data, "o", type_, context=context)
    for value, shares in ((shared, True), (other, False)):
        found = resource_bytes(value, data.nbytes)
        assert found is not None
        assert np.shares_memory(found, data) == shares
        np.testing.assert_array_equal(found.view(np.float32), data)
        assert resource_bytes(value, data.nbytes + 4) is None


def test_shared_memory_is_released_with_its_context():
    gc.collect()
    before = len(resources._SHARED)
    data = np.zeros(1024, np.float32)
    kind = ir.RankedTensorType.get([1024], ir.F32Type.get(context := new_context()), loc=ir.Location.unknown(context))
    value = resource(data, "w", kind)
    held = resource_bytes(value, data.nbytes)
    assert len(resources._SHARED) == before + 1
    del value, kind, context
    gc.collect()
    assert len(resources._SHARED) == before  # arrays that were read stay valid
    assert held is not None

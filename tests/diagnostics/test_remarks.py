"""Remarks that mean more than their text."""

from __future__ import annotations

import copy
import pickle

from fx_importer.diagnostics.remarks import WeightsRead


def test_copies_have_the_names():
    remark = WeightsRead(["b", "a"])
    for copied in (copy.copy(remark), copy.deepcopy(remark), pickle.loads(pickle.dumps(remark))):
        assert (copied, copied.names) == (remark, ("a", "b"))

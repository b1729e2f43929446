"""measurements/op_coverage.md agrees with measurements of selected operators, which run in a process that may crash.

Every eightieth operator is measured. Of operators that pass on the page, the first sample is run. With ``-m slow``,
every tenth is measured, and all samples are run.
"""

import importlib.util
from collections.abc import Iterator

import pytest

from benchmarks.op_matrix import OUTPUT_TYPES, Worker, recorded
from testing.op_cases import operators

SELECTED = sorted(operators())[::10]
COSTLY = {"linalg.inv", "linalg.pinv.singular"}
QUICK = set(SELECTED[::8]) - COSTLY
INSTALLED = [kind for kind in OUTPUT_TYPES if kind != "tosa" or importlib.util.find_spec("tosa_reference_model")]
PAGE = recorded()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(str(tmp_path_factory.mktemp("operators")), seconds=120)
    yield worker
    worker.stop()


def samples_of(name: str) -> int:
    """Return the number of samples that decide the page's cell: all of them, unless the page says that they pass."""
    return 3 if any((name, kind) in PAGE for kind in INSTALLED) else 1


CASES = [
    *(
        pytest.param(name, samples_of(name), marks=() if name in QUICK else pytest.mark.slow)
        for name in SELECTED
        if name in QUICK or samples_of(name) == 3
    ),
    *(pytest.param(name, 3, marks=pytest.mark.slow) for name in SELECTED if samples_of(name) == 1),
]


@pytest.mark.parametrize("name, samples", CASES)
def test_page_agrees_with_measurement(worker: Worker, name: str, samples: int):
    rows = worker.ask({"op": name, "dtype": "", "samples": samples, "output_types": INSTALLED})
    found = {row["output_type"]: row for row in rows}
    statuses = {kind: row["status"] for kind, row in found.items()}
    assert statuses == {kind: PAGE.get((name, kind), "pass") for kind in INSTALLED}, found


def test_every_row_is_an_operator():
    assert {name for name, _ in PAGE} <= operators().keys()

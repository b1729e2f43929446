"""docs/op-coverage.md, held against what happens: a selection of the operators, in a process that may crash."""

import importlib.util
from collections.abc import Iterator

import pytest

from benchmarks.op_cases import operators
from benchmarks.op_matrix import OUTPUT_TYPES, Worker, recorded

SELECTED = sorted(operators())[::10]
INSTALLED = [kind for kind in OUTPUT_TYPES if kind != "tosa" or importlib.util.find_spec("tosa_reference_model")]
SAYS = recorded()
if importlib.util.find_spec("jax") is None:  # then StableHLO's interpreter runs what XLA did for the page
    SAYS["linalg.pinv.singular", "stablehlo"] = "run"  # it ends at a tensor without elements


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(str(tmp_path_factory.mktemp("operators")), seconds=120)
    yield worker
    worker.stop()


@pytest.mark.parametrize("name", SELECTED)
def test_the_page_says_what_happens(worker: Worker, name: str):
    rows = worker.ask({"op": name, "dtype": "", "samples": 3, "output_types": INSTALLED})
    found = {row["output_type"]: row for row in rows}
    met = {kind: row["status"] for kind, row in found.items()}
    assert met == {kind: SAYS.get((name, kind), "pass") for kind in INSTALLED}, found


def test_every_row_is_an_operator():
    assert {name for name, _ in SAYS} <= operators().keys()

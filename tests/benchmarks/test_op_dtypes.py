"""measurements/op_dtypes.md agrees with measurements of selected operators, which run in a process that may crash."""

import importlib.util
from collections.abc import Iterator

import pytest

from benchmarks.op_dtypes import DTYPES, recorded
from benchmarks.op_matrix import OUTPUT_TYPES, Worker
from testing.op_cases import operators

SELECTED = {
    "bfloat16": ("__rdiv__", "chalf", "nn.functional.cosine_similarity", "nn.functional.gelu"),
    "float16": ("logsumexp", "nn.functional.layer_norm"),
    "int32": ("index_add", "sum"),
    "int64": (
        "nn.functional.conv_transpose1d",
        "nn.functional.local_response_norm",
        "nn.functional.max_pool3d",
        "topk",
    ),
    "bool": ("__rdiv__", "index_add", "item", "max.reduction_with_dim", "scatter_add", "scatter_reduce.amin"),
    "complex64": ("cumprod", "linalg.vecdot", "qr", "tan"),
}
INSTALLED = [kind for kind in OUTPUT_TYPES if kind != "tosa" or importlib.util.find_spec("tosa_reference_model")]
PAGE = recorded()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(str(tmp_path_factory.mktemp("operators")), seconds=120)
    yield worker
    worker.stop()


@pytest.mark.slow_rows(unless="-(chalf|logsumexp|topk|cumprod)$")
@pytest.mark.parametrize(("dtype", "name"), [(dtype, name) for dtype, names in SELECTED.items() for name in names])
def test_page_agrees_with_measurement(worker: Worker, dtype: str, name: str):
    rows = worker.ask({"op": name, "dtype": dtype, "samples": 1, "output_types": INSTALLED})
    found = {row["output_type"]: row for row in rows}
    statuses = {kind: row["status"] for kind, row in found.items()}
    assert statuses == {kind: PAGE.get((name, dtype, kind), "pass") for kind in INSTALLED}, found


def test_every_row_is_an_operator_and_a_dtype():
    assert PAGE
    assert {name for name, _, _ in PAGE} <= operators().keys()
    assert {dtype for _, dtype, _ in PAGE} <= set(DTYPES)

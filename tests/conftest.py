"""What holds for every test, and for the processes that tests start."""

import os
import tempfile
from collections.abc import Iterator

import pytest

# Read when torch is first imported. Tests run side by side, and none of them has enough work for two threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A test that would fetch something fails at once.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def reports_go_where_pytest_cleans_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        directory = str(tmp_path_factory.mktemp("temporary"))
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", directory)
        yield

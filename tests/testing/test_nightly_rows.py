"""Which rows of a test are left to the night."""

from testing.nightly_rows import missing, nightly, read_times


def test_the_row_that_takes_least_stays():
    times = ["2.0 t.py::f[a]", "3.0 t.py::f[b]", "0.7 t.py::f[c]", "0.15 t.py::h[a]", "8 t.py::g", "0.12 t.py::h[b]"]
    times += ["0.1 t.py::f[b]", "0.7 tests/test_lit.py::f[a]", "1.2 tests/test_lit.py::f[b]", "1.1 t.py::i[a]"]
    seconds = read_times(line.replace(" ", "\t") for line in times)
    assert nightly(seconds) == ["t.py::f[a]", "t.py::f[c]", "tests/test_lit.py::f[b]"]


def test_rows_of_no_test_are_named():
    listed = {"a.py::f[1]", "a.py::f[2]", "b.py::f[1]"}
    assert missing(listed, {"a.py::f[1]", "a.py::g"}) == ["a.py::f[2]"]

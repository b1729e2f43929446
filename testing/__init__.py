"""Models, operator cases, special values and random programs that the tests and benchmarks share."""

"""Benchmark a model on several engines: eager PyTorch, Inductor, and the backends that run lowered modules."""

from fx_importer.benchmarking.engines import Candidate, Example, chosen_engines, lowered_engine
from fx_importer.benchmarking.measure import Measurement, measure, recommendation, table

__all__ = [
    "Candidate",
    "Example",
    "Measurement",
    "chosen_engines",
    "lowered_engine",
    "measure",
    "recommendation",
    "table",
]

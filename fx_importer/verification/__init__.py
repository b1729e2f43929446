"""Comparison of lowered programs with eager PyTorch, and bisection of mismatches."""

from fx_importer.verification.bisection import bisect
from fx_importer.verification.comparison import TOLERANCES, Comparison, Tolerance, compare
from fx_importer.verification.divergence import Divergence, DivergenceCause
from fx_importer.verification.subject import Inputs, Subject
from fx_importer.verification.verdict import Check, MismatchError, OutputCheck, Status, Verdict
from fx_importer.verification.verifier import example_inputs, verify

__all__ = [
    "TOLERANCES",
    "Check",
    "Comparison",
    "Divergence",
    "DivergenceCause",
    "Inputs",
    "MismatchError",
    "OutputCheck",
    "Status",
    "Subject",
    "Tolerance",
    "Verdict",
    "bisect",
    "compare",
    "example_inputs",
    "verify",
]

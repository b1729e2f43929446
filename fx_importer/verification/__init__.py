"""Holds what was lowered against eager PyTorch, and finds where they part."""

from fx_importer.verification.comparing import TOLERANCES, Comparison, Tolerance, compare
from fx_importer.verification.verdict import Check, MismatchError, OutputCheck, Status, Verdict
from fx_importer.verification.verifying import Inputs, Subject, verify

__all__ = [
    "TOLERANCES",
    "Check",
    "Comparison",
    "Inputs",
    "MismatchError",
    "OutputCheck",
    "Status",
    "Subject",
    "Tolerance",
    "Verdict",
    "compare",
    "verify",
]

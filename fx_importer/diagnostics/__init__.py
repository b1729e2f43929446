"""Diagnostics of a compilation: MLIR's diagnostics, causes of failures, the trace, progress and reports."""

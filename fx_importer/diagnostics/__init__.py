"""What a compilation reports: diagnostics, causes of failures, the trace, progress and reports."""

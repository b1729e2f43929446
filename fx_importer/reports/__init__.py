"""What a failed stage leaves behind: a directory in which the failure can be read, and repeated."""

from fx_importer.reports.bundle import write_report

__all__ = ["write_report"]

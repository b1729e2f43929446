"""What a failed stage leaves behind: a directory to read the failure in, and to repeat it; and dumps."""

from fx_importer.diagnostics.reports.bundle import Reporter
from fx_importer.diagnostics.reports.dumps import Dumps
from fx_importer.diagnostics.reports.failure import Failure

__all__ = ["Dumps", "Failure", "Reporter"]

"""Reports of failed stages, with reproducers, and dumps of stages."""

from fx_importer.diagnostics.reports.bundle import Reporter
from fx_importer.diagnostics.reports.dumps import Dumps
from fx_importer.diagnostics.reports.failure import Failure

__all__ = ["Dumps", "Failure", "Reporter"]

"""Export of a model or a function with example inputs to an ExportedProgram."""

from fx_importer.frontend.export import export_program

__all__ = ["export_program"]

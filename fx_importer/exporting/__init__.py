"""A model or a function and example inputs → an ExportedProgram."""

from fx_importer.exporting.export import export_program

__all__ = ["export_program"]

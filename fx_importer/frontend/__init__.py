"""Export of a model or a function with example inputs to an ExportedProgram."""

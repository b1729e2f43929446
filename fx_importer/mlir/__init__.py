"""The border to MLIR's Python bindings: contexts, resources, module files, and emitting operations."""

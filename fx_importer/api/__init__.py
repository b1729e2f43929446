"""Public functions, one file each, and the result of a lowering."""

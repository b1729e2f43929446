"""Public functions, one file each."""

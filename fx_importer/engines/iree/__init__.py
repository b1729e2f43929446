"""IREE, for processors and GPUs."""

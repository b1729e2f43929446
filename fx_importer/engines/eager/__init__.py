"""Eager PyTorch, the reference for other engines."""

"""Symbolic sizes and numbers of a program: folded, compared, and computed as tensors."""

"""Emitters of operations, by dialect."""

"""Decomposition tables, and how one is applied to an exported program."""
